"""Terminal and JSON output of the commands: tables, colours, errors with their exit codes, executions.

Text from documents is stripped of control characters before it is printed: it must not control the terminal.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rune.core.definition.parser import SourceText
from rune.core.definition.problems import NOT_JSON, Problem
from rune.core.execution.reasons import Waiting
from rune.core.json_decoder import read_json
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError

EXIT = {"completed": 0, "failed": 1, "halted": 1, "cancelled": 1}
"""Exit codes by the status of an execution."""

VIOLATIONS, INVALID, UNREACHABLE, ITEMS_FAILED = 1, 2, 3, 4
UNEXPECTED = 70
INTERRUPTED, TERMINATED = 130, 143

MAX_ROWS = 40
MAX_OPEN_ROWS = 20
MAX_FAILURES = 5
RELATIONS = {"parent_id": "child of", "retry_of": "retry or rerun of"}
STATUSES = ("success", "failed", "skipped", "cancelled", "not_reached")

ANSI_CODES = {
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
    "grey": 90,
    "bold": 1,
}
COLOURS = {
    "success": "green",
    "completed": "green",
    "ok": "green",
    "failed": "red",
    "halted": "red",
    "bad": "red",
    "skipped": "grey",
    "not_reached": "grey",
    "cancelled": "yellow",
    "warn": "yellow",
    "running": "cyan",
    "waiting": "magenta",
    "paused": "yellow",
}
"""Colours by status."""

Cell = str | tuple[str, str]
"""Text, or a pair of text and colour."""


def colourful() -> bool:
    """Return whether stdout is a terminal that shows colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def clean(text: str) -> str:
    """Return the text with control characters replaced."""
    return "".join(each if each.isprintable() else " " if each in "\r\n\t" else "\ufffd" for each in text)


def clean_lines(text: str) -> str:
    """Return the text with the control characters of each line replaced."""
    return "\n".join(map(clean, text.split("\n")))


def paint(text: str, colour: str) -> str:
    """Return the text in a colour, with control characters replaced."""
    text = clean(text)
    if not colour or not colourful():
        return text
    return f"\x1b[{ANSI_CODES[colour]}m{text}\x1b[0m"


def by_status(status: str) -> Cell:
    return status, COLOURS.get(status, "")


def width(text: str) -> int:
    """Return the number of terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in text
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows as aligned columns; the last column may exceed the width of the terminal."""
    cells = [
        [(clean(each), "") if isinstance(each, str) else (clean(each[0]), each[1]) for each in row]
        for row in rows
    ]
    table = [[(each, "bold") for each in header], *cells]
    widths = [max(width(row[column][0]) for row in table) for column in range(len(header))]
    for row in table:
        parts = [
            paint(text, colour) + " " * (widths[i] - width(text)) for i, (text, colour) in enumerate(row)
        ]
        print("  ".join(parts).rstrip())


def count(number: int, noun: str) -> str:
    """Format as `1 node` or `2,000 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(ms: float) -> str:
    """Format as `12 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min` or `3 d 4 h`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours} h" if hours else f"{days:,} d"


def moment(at: int) -> str:
    """Format a time (epoch ms) in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))


def local_time(text: str) -> str:
    """Format a time in ISO 8601 as `moment` does."""
    return moment(round(datetime.fromisoformat(text).timestamp() * 1000))


def until(due: int, now: int) -> str:
    """Format as `in 3.0 s (2026-01-01 12:00:00)`, or `due (…)` if the time has passed."""
    left = f"in {duration(due - now)}" if due > now else "due"
    return f"{left} ({moment(due)})"


_UNREACHABLE_CODES = frozenset(
    {
        "STORE_AWAY",
        "STORE_DAMAGED",
        "NEWER_FORMAT",
        "BAD_FRAME",
        "NEEDS_MIGRATION",
        "FUNCTIONS_MISSING",
        "REDIS_UNFIT",
        "UNREACHABLE",
    }
)
"""Codes of errors that say that a store or a server cannot be used, whatever their class."""


def print_error(error: RuneError, *, as_json: bool, hint: str = "") -> int:
    """Print an error and return the exit code."""
    unreachable = error.code in _UNREACHABLE_CODES or (
        isinstance(error, StoreUnavailableError) and error.code != "EMPTY_STORE"
    )
    if as_json:
        status = "unavailable" if unreachable else "invalid"
        print_problems((Problem("", error.code, error.message, hint),), as_json=True, status=status)
    else:
        print(clean_lines(f"rune: {error.message}{f' ({hint})' if hint else ''}"), file=sys.stderr)
    return UNREACHABLE if unreachable else INVALID


def print_unexpected(message: str, hint: str, *, as_json: bool) -> None:
    """Print the error of a command that failed in a way it does not expect."""
    if as_json:
        print_problems((Problem("", "INTERNAL", message, hint),), as_json=True)
    else:
        print(f"rune: {message} ({hint})", file=sys.stderr)


_JSON_OPTIONS = frozenset({"input", "--input", "--value", "--parameters"})
_JSON_HINT = """write JSON in single quotes, such as '{"name": "Ada"}' or '"text"', or @FILE to read a file"""


def print_problems(
    problems: Sequence[Problem], *, as_json: bool, file: str = "", status: str = "invalid"
) -> int:
    """Print problems, as one document on stdout or as lines on stderr, and return the exit code. `file` is the document
    that the problems with a line are in."""
    if as_json:
        print_json({"status": status, "problems": [msgspec.to_builtins(each) for each in problems]})
    else:
        for each in problems:
            advice = each.hint or (_JSON_HINT if each.code == NOT_JSON and each.path in _JSON_OPTIONS else "")
            hint = f" ({advice})" if advice else ""
            place = place_in(file, each)
            text = f"{place}{each.path or 'document'}: {each.message}" if place else each.text
            print(clean(f"{text}{hint}"), file=sys.stderr)
    return INVALID


def place_in(file: str, problem: Problem) -> str:
    """Return the place of a problem as compilers print it, `file.yaml:12:7: `; empty if it is unknown."""
    return f"{file}:{problem.line}:{problem.column}: " if file and problem.line is not None else ""


def file_of(given: str, source: SourceText | None) -> str:
    """Return the name of the file that an argument names: standard input, or the document of a folder."""
    return "stdin" if given == "-" else (source.name if source is not None else "") or given


def print_json(document: object) -> None:
    """Print a document as one line of stdout."""
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def origin_text(error: Mapping[str, Any]) -> str:
    """Return where the error of an execution comes from, such as ` (node price, item users:5, attempt 3)`."""
    if not error.get("node_id"):
        return ""
    parts = [f"node {clean(error['node_id'])}"]
    if error.get("node_type"):
        parts[0] += f" of type {clean(error['node_type'])}"
    items = "/".join(f"{each['split_node_id']}:{each['item_index']}" for each in error.get("lineage") or ())
    if items:
        parts.append(f"item {clean(items)}")
    if error.get("attempt", 1) > 1:
        parts.append(f"attempt {error['attempt']}")
    return f" ({', '.join(parts)})"


def version_text(version: int | None, alias: str | None) -> str:
    """Format the version of an execution, with the alias that selected it: `3` or `3 (stable)`; empty without one."""
    if version is None:
        return ""
    return f"{version} ({alias})" if alias else str(version)


MAX_PRINTED_BYTES = 1024 * 1024


def print_document(document: dict[str, Any], *, most: int | None = None) -> None:
    """Print the node runs of an execution, its status and its output; many are summarised unless `most`."""
    nodes = document["nodes"]
    if most is None and len(nodes) > MAX_ROWS:
        _print_summary(nodes)
    else:
        shown = nodes[: MAX_ROWS if most is None else most]
        print_table(("node", "item", "status", "attempts", "took", "error"), [_row(node) for node in shown])
        if len(nodes) > len(shown):
            print(paint(f"… and {count(len(nodes) - len(shown), 'more node run')}", "grey"))
    status, name = document["status"], document["execution_id"]
    took = document["total_duration_ms"]
    ended = "" if took is None else f" in {duration(took)}"
    version = version_text(document.get("version"), document.get("alias"))
    workflow = clean(document["workflow_id"]) + (f", version {version}" if version else "")
    print(f"\n{paint(status, COLOURS.get(status, ''))} {name} ({workflow}){ended}")
    if document.get("paused_because"):
        print(paint(f"paused by the engine: {clean(document['paused_because'])}", "yellow"))
    for field, relation in RELATIONS.items():
        if document.get(field):
            print(paint(f"{relation} {document[field]}", "grey"))
    if document["error"]:
        error = document["error"]
        print(f"{paint(error['code'], 'red')}: {clean(error['message'])}{origin_text(error)}")
    _print_output(document)
    if document.get("failed_items"):
        print(paint(f"{status}, {count(document['failed_items'], 'item')} failed", "yellow"))


def _print_output(document: dict[str, Any]) -> None:
    """Print the output, if there is one. A large one is not: what is nested deeply grows many times when indented."""
    output = document["output"]
    text = output if isinstance(output, msgspec.Raw) else msgspec.json.encode(output)
    size = len(memoryview(text))
    if size > MAX_PRINTED_BYTES:
        name = clean(document["execution_id"])
        print(
            paint(
                f"output of {size:,} bytes: `rune value {name}` shows parts of it, --json all of it", "grey"
            )
        )
        return
    value = read_json(text)
    if value is not None:
        print(json.dumps(value, ensure_ascii=False, indent=2))


def _print_summary(nodes: list[dict[str, Any]]) -> None:
    """Print one line per node, then the first failures."""
    counts: dict[str, dict[str, int]] = {}
    for node in nodes:
        statuses = counts.setdefault(node["node_id"], {})
        statuses[node["status"]] = statuses.get(node["status"], 0) + 1
    columns = [each for each in STATUSES if any(each in statuses for statuses in counts.values())]
    rows: list[list[Cell]] = []
    for name, statuses in counts.items():
        found = [(f"{statuses[each]:,}", COLOURS[each]) if each in statuses else "" for each in columns]
        rows.append([name, *found])
    print_table(("node", *columns), rows)
    failures = [node for node in nodes if node["status"] == "failed"]
    if failures:
        print()
        print_table(
            ("failed", "item", "status", "attempts", "took", "error"),
            [_row(each) for each in failures[:MAX_FAILURES]],
        )
    if len(failures) > MAX_FAILURES:
        print(paint(f"… and {len(failures) - MAX_FAILURES:,} more failures", "grey"))


def _row(node: dict[str, Any]) -> list[Cell]:
    error = f"{node['error']['code']}: {node['error']['message']}" if node["error"] else ""
    ran = node["attempts"]
    return [
        node["node_id"],
        "/".join(str(frame["item_index"]) for frame in node["lineage"]),
        by_status(node["status"]),
        str(ran) if ran else "",
        duration(node["duration_ms"]) if ran else "",
        ("output pinned", "grey") if node.get("pinned") else (error, "red"),
    ]


def print_open(waiting: Sequence[Waiting], now: int) -> None:
    """Print the open nodes and what each one waits for."""
    rows: list[list[Cell]] = []
    for each in waiting[:MAX_OPEN_ROWS]:
        rows.append(
            [each.node, "" if each.lineage == "/" else each.lineage, _reason(each), _until(each, now)]
        )
    print_table(("open", "item", "why", "until"), rows)
    if len(waiting) > MAX_OPEN_ROWS:
        found: dict[str, int] = {}
        for each in waiting:
            found[f"{each.node} {each.reason}"] = found.get(f"{each.node} {each.reason}", 0) + 1
        print(paint(f"… and {len(waiting) - MAX_OPEN_ROWS:,} more; totals:", "grey"))
        for reason, number in sorted(found.items(), key=lambda each: -each[1])[:MAX_OPEN_ROWS]:
            print(f"  {number:>9,}  {clean(reason)}")


def _reason(each: Waiting) -> str:
    parts = [each.reason]
    for name, edges in (("arrived", each.arrived), ("skipped", each.skipped), ("missing", each.missing)):
        if edges:
            parts.append(f"{name} {', '.join(edges)}")
    if each.total is not None:
        parts.append(f"{each.done or 0:,} of {each.total:,} done")
    return "; ".join(parts)


def _until(each: Waiting, now: int) -> str:
    if each.due is None:
        return "no timeout" if each.missing or each.total is not None else ""
    waits = not each.missing and each.total is None
    return until(each.due, now) if waits else f"times out {until(each.due, now)}"


def print_event(event: dict[str, Any]) -> None:
    """Print one event of an execution as a line."""
    items = "/".join(f"{frame['split_node_id']}:{frame['item_index']}" for frame in event["lineage"])
    kind = event["kind"]
    status = kind.rpartition(".")[2]
    details = dict(event["details"])
    shown: list[str] = []
    error = details.pop("error", None)
    if error:
        shown.append(f"{error['code']}: {error['message']}")
    if details.get("attempt", 1) > 1 or status == "retrying":
        shown.append(f"attempt {details['attempt']}")
    if details.get("resume_at"):
        shown.append(f"until {moment(details['resume_at'])}")
    if details.get("signal"):
        shown.append(f"for signal `{details['signal']}`")
    if details.get("late"):
        shown.append("late")
    what = clean(" ".join(each for each in (event["node_id"] or "", items) if each))
    line = f"{event['number']:>5}  {moment(event['at'])}  {paint(kind, COLOURS.get(status, ''))}"
    print(
        "  ".join([line, *([what] if what else []), *([clean("; ".join(shown))] if shown else [])]),
        flush=True,
    )
