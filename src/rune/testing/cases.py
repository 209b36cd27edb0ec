"""Tests of workflows as data, in YAML or JSON: a workflow, its input, mocks, steps and the expected result.

- case: a small order needs no approval
  workflow: approval.yaml
  input: {order: 8, amount: 20}
  expect: {status: completed, output: {order: 8, shipped: true, because: small}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rune.core.definition.parser import SourceText
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.limits import LIMITS
from rune.documents.positions import locate
from rune.documents.yaml import decode_yaml
from rune.errors import InvalidDocumentError
from rune.testing.expectations import Expectation
from rune.testing.mocks import Mock, Mocks, milliseconds

BAD_CASE = "BAD_TEST"
SUFFIXES = ("yaml", "yml", "json")
_PLACE = re.compile(r" - at `\$?([^`]*+)`$")

ACTIONS = (
    "start",
    "signal",
    "pause",
    "resume",
    "cancel",
    "retry",
    "rerun",
    "deploy",
    "advance",
    "await",
    "expect",
)
OPTIONS = ("as", "of", "answers", "refused", "says", "same")


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a mocked node does: one of `returns`, `fails` and `runs`; `items` are answers by item."""

    returns: Any = msgspec.UNSET
    fails: str | dict[str, Any] | None = None
    times: int | None = None
    takes: str | float | None = None
    runs: bool = False
    items: dict[str, Any] = {}


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test. `workflow` is a file, relative to the file of the test; `document` a workflow in place of one."""

    case: str
    about: str = ""
    workflow: str | None = None
    document: dict[str, Any] | None = None
    workflows: list[str | dict[str, Any]] = []
    nodes: list[str] = []
    input: Any = None
    mocks: dict[str, Any] = {}
    mock_types: dict[str, Any] = {}
    strict: bool = True
    refused: Literal["document", "input"] | None = None
    steps: list[dict[str, Any]] = []
    expect: Expectation | None = None

    def make_mocks(self) -> Mocks:
        """Return new mocks as the test describes them."""
        made = Mocks()
        self.set_mocks(made)
        return made

    def set_mocks(self, mocks: Mocks) -> None:
        """Set mocks as the test describes them."""
        mocks.strict(self.strict)
        for name, answers in self.mocks.items():
            _set(mocks.node(name), answers)
        for name, answers in self.mock_types.items():
            _set(mocks.type(name), answers)


class CaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file in the long form: fields that all of its tests share, and the tests."""

    tests: list[dict[str, Any]]
    workflow: str | None = None
    document: dict[str, Any] | None = None
    workflows: list[str | dict[str, Any]] = []
    nodes: list[str] = []
    mocks: dict[str, Any] = {}
    mock_types: dict[str, Any] = {}
    strict: bool = True


def case_files(names: Sequence[str]) -> list[Path]:
    """Return the files that are named; of a folder those whose names begin with `test`, recursively."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found += sorted(each for suffix in SUFFIXES for each in path.rglob(f"test*.{suffix}"))
        else:
            found.append(path)
    return found


_CASE_HINT = "write a file with `workflow`, the path of this one, and `tests`"


def load_cases(path: Path) -> list[Case]:
    """Read the tests of a file; raise InvalidDocumentError with all problems if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidDocumentError(
            (Problem("", "UNREADABLE", f"`{path}` cannot be read: {reason}"),)
        ) from None
    decoded = decode_yaml(data, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    problems = list(decoded.problems)
    cases: list[Case] = []
    if not problems:
        cases = _read(decoded.value, problems)
    if problems:
        raise InvalidDocumentError(locate(problems, SourceText(data, "yaml")))
    return cases


def _read(value: Any, problems: list[Problem]) -> list[Case]:
    shared: dict[str, Any] = {}
    raw, prefix = value, ""
    if isinstance(value, Mapping) and "case" in value and "tests" not in value:
        raw = [value]
    elif isinstance(value, Mapping) and "nodes" in value:
        problems.append(Problem("", BAD_CASE, "this is a workflow, not a test of one", _CASE_HINT))
        return []
    elif isinstance(value, Mapping):
        if _convert(value, CaseFile, "", problems) is None:
            return []
        shared = {name: each for name, each in value.items() if name != "tests"}
        raw, prefix = value["tests"], "tests"
    if not isinstance(raw, list):
        problems.append(
            Problem("", BAD_CASE, "a file of tests is a test, a list of tests, or an object with `tests`")
        )
        return []
    found: list[Case] = []
    for at, fields in enumerate(raw):
        path = "" if fields is value else f"{prefix}[{at}]"
        case = _convert(_merged(shared, fields), Case, path, problems)
        if case is not None:
            found.append(case)
            problems += _mistakes(case, path)
    names = [each.case for each in found]
    for name in sorted({each for each in names if names.count(each) > 1}):
        problems.append(Problem(prefix, BAD_CASE, f"two tests are called `{name}`"))
    return found


def _merged(shared: Mapping[str, Any], fields: Any) -> Any:
    """Return the fields of a test with those that all tests of the file share; mocks are merged by name."""
    if not isinstance(fields, Mapping):
        return fields
    merged = {**shared, **fields}
    for name in ("mocks", "mock_types"):
        if isinstance(shared.get(name), Mapping) and isinstance(fields.get(name), Mapping):
            merged[name] = {**shared[name], **fields[name]}
    if "document" in fields:
        merged.pop("workflow", None)
    elif "workflow" in fields:
        merged.pop("document", None)
    return merged


def _convert(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        message = _PLACE.sub("", str(error))
        problems.append(Problem(f"{path}{place[1] if place else ''}".lstrip("."), BAD_CASE, message))
        return None


def _mistakes(case: Case, path: str) -> list[Problem]:
    found: list[Problem] = []
    if (case.workflow is None) == (case.document is None):
        found.append(Problem(path, BAD_CASE, "give either `workflow`, a file, or `document`"))
    if bool(case.steps) == (case.expect is not None):
        found.append(Problem(path, BAD_CASE, "give either `expect` or `steps`"))
    for field in ("mocks", "mock_types"):
        for name, answers in getattr(case, field).items():
            try:
                _set(Mock(name), answers)
            except (msgspec.ValidationError, ValueError, TypeError) as error:
                found.append(Problem(f"{path}.{field}.{name}", BAD_CASE, _PLACE.sub("", str(error))))
    for at, step in enumerate(case.steps):
        found += _step_mistakes(step, f"{path}.steps[{at}]")
    return found


def _step_mistakes(step: Mapping[str, Any], path: str) -> list[Problem]:
    known = (*ACTIONS, *OPTIONS)
    unknown = [each for each in step if each not in known]
    if unknown:
        return [Problem(path, BAD_CASE, f"unknown field `{unknown[0]}`", did_you_mean(unknown[0], known))]
    if len(step.keys() & set(ACTIONS)) != 1:
        return [Problem(path, BAD_CASE, f"a step has one action: {', '.join(ACTIONS)}")]
    found: list[Problem] = []
    if "expect" in step:
        _convert(step["expect"], Expectation, f"{path}.expect", found)
    if "advance" in step:
        try:
            milliseconds(step["advance"])
        except (ValueError, TypeError) as error:
            found.append(Problem(f"{path}.advance", BAD_CASE, str(error)))
    return found


def _set(mock: Mock, answers: Any) -> None:
    for fields in answers if isinstance(answers, list) else [answers]:
        answer = msgspec.convert(fields, Answer)
        if answer.takes is not None:
            mock.takes(answer.takes)
        if answer.runs:
            mock.runs()
        if answer.fails is not None:
            error = {"code": answer.fails} if isinstance(answer.fails, str) else answer.fails
            mock.fails(**error, times=answer.times)
        elif answer.returns is not msgspec.UNSET:
            mock.returns(answer.returns, times=answer.times)
        elif not (answer.runs or answer.items or answer.takes is not None):
            raise ValueError("a mock has `returns`, `fails`, `takes`, `runs` or `items`")
        for item, inner in answer.items.items():
            _set(mock.item(int(item) if item.isdecimal() else item), inner)
