"""Compares a run with the expected result of its case and lists the deviations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rune.testing.expectations import matches
from tests.acceptance.conformance.case import Case, expand

RESULT_FIELDS = frozenset(
    {
        "execution_id",
        "workflow_id",
        "status",
        "error",
        "output",
        "context",
        "nodes",
        "started_at",
        "completed_at",
        "total_duration_ms",
    }
)
TERMINAL = frozenset({"completed", "failed", "halted", "cancelled"})
NOT_ENDED = frozenset({"running", "paused"})
PROBLEM_FIELDS = frozenset({"path", "code", "message", "hint"})
NOT_RUN = frozenset({"skipped", "cancelled"})


@dataclasses.dataclass(frozen=True)
class Calls:
    """The calls that the HTTP stub received for one path."""

    count: int = 0
    max_concurrent: int = 0


@dataclasses.dataclass(frozen=True)
class Mail:
    """A mail that the sink received."""

    recipients: tuple[str, ...]
    raw: str


@dataclasses.dataclass(frozen=True)
class Observation:
    """The observable result of one run."""

    exit_code: int
    stdout: str
    stderr: str = ""
    calls: Mapping[str, Calls] = dataclasses.field(default_factory=dict)
    mails: tuple[Mail, ...] = ()


def deviations(case: Case, run: Observation) -> list[str]:
    """How a run deviates from the expected result of its case."""
    return deviations_from(case.expect, run)


def deviations_from(expected: Mapping[str, Any], run: Observation) -> list[str]:
    """How a run deviates from an expected result."""
    expect = expand(dict(expected))
    try:
        printed = json.loads(run.stdout)
    except ValueError as error:
        return [f"stdout is not one JSON document ({error}): {run.stdout[:200]!r}"]
    if not isinstance(printed, dict):
        return [f"stdout is not a JSON object: {run.stdout[:200]!r}"]
    found = list(_exit_code(expect, run))
    found += _rejection(printed) if run.exit_code == 2 else _result(expect, printed)
    found += _texts(expect, run)
    found += missing_problems(expect.get("problems", []), printed)
    found += _calls(expect, run)
    found += _mails(expect, run)
    return found


def missing_problems(expected: list[Any], printed: Mapping[str, Any]) -> list[str]:
    """One deviation for each expected problem that was not printed."""
    problems = printed.get("problems", [])

    def fits(wanted: Mapping[str, Any], problem: Mapping[str, Any]) -> bool:
        text = " ".join(str(problem.get(key)) for key in sorted(PROBLEM_FIELDS)).lower()
        begins = str(problem.get("path", "")).startswith(wanted["path"])
        return begins and all(part.lower() in text for part in wanted.get("contains", []))

    return [
        f"no problem fits {wanted} among {problems}"
        for wanted in expected
        if not any(fits(wanted, problem) for problem in problems)
    ]


def _exit_code(expect: Mapping[str, Any], run: Observation) -> Iterator[str]:
    if "exit_code" in expect and run.exit_code not in _choices(expect["exit_code"]):
        yield f"exit code {run.exit_code}, expected {expect['exit_code']}; stderr: {run.stderr[-400:]}"


def _rejection(printed: Mapping[str, Any]) -> Iterator[str]:
    if printed.get("status") != "invalid":
        yield f"a rejection has status {printed.get('status')!r} instead of 'invalid'"
    problems = printed.get("problems")
    if not problems:
        yield "a rejection lists no problem"
        return
    for problem in problems:
        if not problem.keys() >= PROBLEM_FIELDS:
            yield f"a problem lacks {sorted(PROBLEM_FIELDS - problem.keys())}: {problem}"


def _result(expect: Mapping[str, Any], printed: Mapping[str, Any]) -> Iterator[str]:
    missing = RESULT_FIELDS - printed.keys()
    if missing:
        yield f"the result lacks {sorted(missing)}"
        return
    if printed["status"] not in TERMINAL and expect.get("status") not in NOT_ENDED:
        yield f"{printed['status']!r} is no terminal status"
    yield from _fields(expect, printed)
    yield from _context(expect, printed["context"])
    yield from _nodes(expect, printed["nodes"])


def _fields(expect: Mapping[str, Any], printed: Mapping[str, Any]) -> Iterator[str]:
    if "status" in expect and printed["status"] not in _choices(expect["status"]):
        yield f"status {printed['status']!r}, expected {expect['status']!r}; error: {printed['error']}"
    for field in ("error", "output"):
        if field in expect and not matches(expect[field], printed[field]):
            yield f"{field} is {printed[field]!r}, expected {expect[field]!r}"


def _context(expect: Mapping[str, Any], context: Mapping[str, Any]) -> Iterator[str]:
    for key, value in expect.get("context", {}).items():
        if key not in context:
            yield f"the context has no {key}"
        elif not matches(value, context[key]):
            yield f"{key} is {context[key]!r}, expected {value!r}"
    for key in expect.get("context_absent", []):
        if key in context:
            yield f"the context has {key}: {context[key]!r}"


def _nodes(expect: Mapping[str, Any], nodes: list[dict[str, Any]]) -> Iterator[str]:
    by_place: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    for entry in nodes:
        place = (entry["node_id"], tuple(frame["item_index"] for frame in entry["lineage"]))
        if place in by_place:
            yield f"{place} is listed twice"
        by_place[place] = entry
    for wanted in expect.get("nodes", []):
        place = (wanted["node_id"], tuple(wanted.get("index", [])))
        if place in by_place:
            yield from _node(wanted, by_place[place], place)
        else:
            yield f"{place} is not listed"
    for node_id, count in expect.get("runs", {}).items():
        ran = sum(entry["node_id"] == node_id and entry["status"] == "success" for entry in nodes)
        if ran != count:
            yield f"{node_id} succeeded {ran} times, expected {count}"
    for node_id in expect.get("absent_nodes", []):
        statuses = {entry["status"] for entry in nodes if entry["node_id"] == node_id} - NOT_RUN
        if statuses:
            yield f"{node_id} must not have run, but is {sorted(statuses)}"


def _node(wanted: Mapping[str, Any], entry: Mapping[str, Any], place: Any) -> Iterator[str]:
    if "status" in wanted and entry["status"] not in _choices(wanted["status"]):
        yield f"{place} is {entry['status']}, expected {wanted['status']}; error: {entry.get('error')}"
    for field in ("output", "attempts"):
        if field in wanted and not matches(wanted[field], entry.get(field)):
            yield f"{place} has {field} {entry.get(field)!r}, expected {wanted[field]!r}"
    error = entry.get("error") or {}
    if "error_code" in wanted and error.get("code") not in _choices(wanted["error_code"]):
        yield f"{place} failed with {error.get('code')!r}, expected {wanted['error_code']!r}"
    for part in _choices(wanted.get("error_contains", [])):
        if part.lower() not in str(error.get("message", "")).lower():
            yield f"the error of {place} does not say {part!r}: {error}"


def _texts(expect: Mapping[str, Any], run: Observation) -> Iterator[str]:
    text = (run.stdout + run.stderr).lower()
    for part in expect.get("error_contains", []):
        if part.lower() not in text:
            yield f"nothing printed contains {part!r}"


def _calls(expect: Mapping[str, Any], run: Observation) -> Iterator[str]:
    for wanted in expect.get("http_calls", []):
        calls = run.calls.get(wanted["path"], Calls())
        if "count" in wanted and calls.count != wanted["count"]:
            yield f"{wanted['path']} was called {calls.count} times, expected {wanted['count']}"
        if calls.max_concurrent > wanted.get("max_concurrent", calls.max_concurrent):
            yield f"{wanted['path']}: {calls.max_concurrent} calls at once, at most {wanted['max_concurrent']}"
        if calls.max_concurrent < wanted.get("min_concurrent", 0):
            yield f"{wanted['path']}: {calls.max_concurrent} calls at once, at least {wanted['min_concurrent']}"


def _mails(expect: Mapping[str, Any], run: Observation) -> Iterator[str]:
    for wanted in expect.get("mails", []):
        if not any(_mail_fits(wanted, mail) for mail in run.mails):
            yield f"no mail fits {wanted} among {run.mails}"
    for text in expect.get("mails_never", []):
        for mail in run.mails:
            if text in mail.raw.replace("\r\n", "\n"):
                yield f"a mail contains {text!r}"


def _mail_fits(wanted: Mapping[str, Any], mail: Mail) -> bool:
    has_recipients = set(_choices(wanted.get("rcpt", []))) <= set(mail.recipients)
    return has_recipients and all(part in mail.raw for part in _choices(wanted.get("contains", [])))


def _choices(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
