"""Tests of workflows as data, in YAML or JSON: a workflow, its input, mocks, steps and the expected result.

- case: a small order needs no approval
  workflow: approval.yaml
  input: {order: 8, amount: 20}
  expect: {status: completed, output: {order: 8, shipped: true, because: small}}

Each test runs on a new engine with a virtual clock in a temporary folder. The fixture `rune_recorded` loads such a
test, which `rune record` wrote, for a test in Python.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rune.build.flow import Workflow
from rune.core.definition.parser import SourceText
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.limits import LIMITS
from rune.documents.loader import locate
from rune.documents.yaml import decode_yaml
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry
from rune.testing.engine import EmbeddedEngine, Run
from rune.testing.expectations import Expectation, matches
from rune.testing.mocks import Mock, Mocks, UnknownItemError, milliseconds

BAD_CASE = "BAD_TEST"
SUFFIXES = ("yaml", "yml", "json")
_PLACE = re.compile(r" - at `\$?([^`]*+)`$")

_ANSWER = ("answers", "refused", "says")
ACTIONS: dict[str, tuple[str, ...]] = {
    "start": ("as", "same", *_ANSWER),
    "signal": ("as", *_ANSWER),
    "pause": ("as", *_ANSWER),
    "resume": ("as", *_ANSWER),
    "cancel": ("as", *_ANSWER),
    "retry": ("of", "as", "same", *_ANSWER),
    "rerun": ("of", "as", "same", *_ANSWER),
    "deploy": _ANSWER,
    "advance": (),
    "await": ("as",),
    "expect": ("as",),
}
"""The actions of steps, each with the keys that a step may have beside it."""
FIELDS: dict[str, tuple[str, ...]] = {
    "signal": ("name", "value", "item"),
    "cancel": ("reason",),
    "retry": ("failed_items",),
    "rerun": ("from", "item"),
    "deploy": ("document", "alias"),
    "await": ("waiting", "parked", "node", "item", "count"),
}
"""The fields of actions that are objects."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a mocked node does: one of `returns`, `fails` and `runs`; `items` are answers by item."""

    returns: Any = msgspec.UNSET
    fails: str | dict[str, Any] | None = None
    times: int | None = None
    takes: str | float | None = None
    runs: bool = False
    items: dict[str, Any] = {}


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test. `workflow` is a file, relative to the file of the test; `document` a workflow in place of one.
    `inherited` names the mocks that all tests of the file share; a file does not give it."""

    case: str
    about: str = ""
    workflow: str | None = None
    document: dict[str, Any] | None = None
    workflows: list[str | dict[str, Any]] = []
    nodes: list[str] = []
    input: Any = None
    mocks: dict[str, Any] = {}
    mock_types: dict[str, Any] = {}
    inherited: list[str] = []
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
    inherited: set[str] = set()
    for name in ("mocks", "mock_types"):
        own, common = (each.get(name) or {} for each in (fields, shared))
        if isinstance(common, Mapping) and isinstance(own, Mapping):
            merged[name] = {**common, **own}
            inherited |= common.keys() - own.keys()
    if inherited and "inherited" not in fields:
        merged["inherited"] = sorted(inherited)
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
    known = dict.fromkeys((*ACTIONS, *(name for options in ACTIONS.values() for name in options)))
    unknown = [each for each in step if each not in known]
    if unknown:
        return [Problem(path, BAD_CASE, f"unknown field `{unknown[0]}`", did_you_mean(unknown[0], known))]
    actions = [each for each in step if each in ACTIONS]
    if len(actions) != 1:
        return [Problem(path, BAD_CASE, f"a step has one action: {', '.join(ACTIONS)}")]
    found = _option_mistakes(step, actions[0], path)
    if "expect" in step:
        _convert(step["expect"], Expectation, f"{path}.expect", found)
    if "advance" in step:
        try:
            milliseconds(step["advance"])
        except (ValueError, TypeError) as error:
            found.append(Problem(f"{path}.advance", BAD_CASE, str(error)))
    return found


def _option_mistakes(step: Mapping[str, Any], action: str, path: str) -> list[Problem]:
    """Return a problem for each key that a step with this action, or the action itself, does not have."""
    found = [
        _unknown_key(path, f"a step with `{action}`", each, (action, *ACTIONS[action]))
        for each in step
        if each not in (action, *ACTIONS[action])
    ]
    given = step[action]
    if action in FIELDS and isinstance(given, Mapping):
        known = FIELDS[action]
        found += [
            _unknown_key(f"{path}.{action}", f"`{action}`", each, known)
            for each in given
            if each not in known
        ]
    return found


def _unknown_key(path: str, what: str, key: Any, known: Sequence[str]) -> Problem:
    allowed = ", ".join(f"`{each}`" for each in known)
    hint = "`as` names the execution" if key == "of" and "as" in known else ""
    return Problem(path, BAD_CASE, f"{what} has no `{key}`; it may have {allowed}", hint)


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


IT = "it"
"""The name of an execution that no step names."""


class CaseFailure(AssertionError):  # noqa: N818 - a failed test, not an error of the program
    """A test failed. `deviations` tells how, one line for each."""

    def __init__(self, deviations: Sequence[str]) -> None:
        super().__init__("\n".join(deviations))
        self.deviations = tuple(deviations)


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """How a test ended: its deviations, none if it passed, and the real time it took."""

    case: Case
    deviations: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.deviations


def run_case(case: Case, folder: Path, *, nodes: Sequence[str] = ()) -> CaseResult:
    """Run one test. Files that it names are relative to `folder`; `nodes` are modules with custom node types."""
    began = time.perf_counter()
    deviations: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="rune-test-") as home:
        mocks = case.make_mocks()
        with EmbeddedEngine(Path(home), mocks, nodes=(*nodes, *case.nodes)) as engine:
            try:
                _check_types(case, nodes)
                _Steps(case, engine, folder).run()
                # Those that all tests of the file share are for the items of some of them.
                engine.check_mocks(case.inherited)
            except CaseFailure as failure:
                deviations = failure.deviations
            except InvalidDocumentError as error:
                deviations = tuple(each.text for each in error.problems)
            except UnknownItemError as error:
                deviations = tuple(str(error).splitlines())
            except (AssertionError, RuneError, OSError, KeyError, TypeError, ValueError) as error:
                deviations = (str(error) or type(error).__name__,)
    return CaseResult(case, deviations, time.perf_counter() - began)


def _check_types(case: Case, nodes: Sequence[str]) -> None:
    """Refuse a mock of a node type that does not exist: it would have no effect."""
    if case.mock_types:
        known = full_registry((*nodes, *case.nodes)).catalogue
        unknown = sorted(case.mock_types.keys() - known.keys())
        _fail([f"no node type is called `{each}`: {did_you_mean(each, known)}" for each in unknown])


class _Steps:
    def __init__(self, case: Case, engine: EmbeddedEngine, folder: Path) -> None:
        self._case = case
        self._engine = engine
        self._folder = folder
        self._runs: dict[str, Run] = {}

    def run(self) -> None:
        deployed = [self._workflow(each) for each in self._case.workflows]
        self._check_mocks(deployed)
        for each in deployed:
            self._engine.deploy(each)
        if not self._case.steps:
            self._run_once(self._case.expect or Expectation())
        for at, step in enumerate(self._case.steps):
            try:
                self._do(step)
            except CaseFailure as failure:
                raise CaseFailure([f"step {at + 1}: {each}" for each in failure.deviations]) from None
            except (AssertionError, RuneError, KeyError, TypeError, ValueError) as error:
                raise CaseFailure([f"step {at + 1}: {error}"]) from error

    def _check_mocks(self, deployed: Sequence[Workflow]) -> None:
        """Refuse a mock of a node that no workflow of the test has: it would have no effect."""
        given = [
            each[action] for each in self._case.steps for action in ("start", "deploy") if each.get(action)
        ]
        others = [self._workflow(each["document"]) for each in given if "document" in each]
        known = {node.id for flow in (self._own, *deployed, *others) for node in flow}
        unknown = sorted(self._case.mocks.keys() - known)
        _fail([f"no workflow has a node `{each}` to mock: {did_you_mean(each, known)}" for each in unknown])

    def _workflow(self, source: str | Mapping[str, Any]) -> Workflow:
        return Workflow.load(self._folder / source if isinstance(source, str) else source)

    @property
    def _own(self) -> Workflow:
        source = self._case.workflow if self._case.workflow is not None else self._case.document
        assert source is not None, "load_cases requires one of the two"
        return self._workflow(source)

    def _run_once(self, expected: Expectation) -> None:
        try:
            run = self._engine.start(self._own, self._case.input)
        except InvalidDocumentError as error:
            if self._case.refused is None:
                raise
            _fail(expected.missing_problems(error.problems))
            return
        if self._case.refused is not None:
            raise CaseFailure([f"the {self._case.refused} was accepted, expected to be refused"])
        self._compare(run, expected)

    def _compare(self, run: Run, expected: Expectation) -> None:
        if expected.waits_for_end:
            self._engine.finish(run)
        else:
            self._engine.settle()
        unknown = sorted(expected.named_nodes - set(run.plan.ids))
        _fail([f"the workflow has no node `{each}`: {did_you_mean(each, run.plan.ids)}" for each in unknown])
        _fail(expected.deviations(run.result.document, self._engine.mocks))

    def _do(self, step: Mapping[str, Any]) -> None:
        action = next(each for each in step if each in ACTIONS)
        refusal: RuneError | None = None
        answer: Any = None
        try:
            answer = getattr(self, f"_{action}")(step[action], step)
        except RuneError as error:
            if "refused" not in step:
                raise
            refusal = error
        if "refused" in step:
            _check_refusal(step, refusal, answer)
        elif "answers" in step and not matches(step["answers"], answer):
            raise CaseFailure([f"{action} returned {answer!r}, expected {step['answers']!r}"])

    def _named(self, step: Mapping[str, Any], field: str = "as") -> Run:
        name = step.get(field, IT)
        if name not in self._runs:
            raise CaseFailure([f"no step has started an execution `{name}`"])
        return self._runs[name]

    def _assign(self, step: Mapping[str, Any], run: Run) -> str:
        if "same" in step and run.id != self._runs[step["same"]].id:
            raise CaseFailure([f"another execution was started than `{step['same']}`"])
        self._runs[step.get("as", IT)] = run
        return run.id

    def _start(self, given: Any, step: Mapping[str, Any]) -> str:
        fields = dict(given or {})
        input = fields.pop("input", self._case.input)
        document, stored = fields.pop("document", None), fields.pop("workflow", None)
        if stored is not None:
            return self._assign(step, self._engine.start_stored(stored, input, **fields))
        flow = self._own if document is None else self._workflow(document)
        return self._assign(step, self._engine.start(flow, input, **fields))

    def _signal(self, given: Any, step: Mapping[str, Any]) -> bool:
        fields = {"name": given} if isinstance(given, str) else dict(given)
        return self._engine.signal(self._named(step), **fields)

    def _pause(self, given: Any, step: Mapping[str, Any]) -> bool:
        return self._engine.pause(self._named(step))

    def _resume(self, given: Any, step: Mapping[str, Any]) -> bool:
        return self._engine.resume(self._named(step))

    def _cancel(self, given: Any, step: Mapping[str, Any]) -> str:
        return self._engine.cancel(self._named(step), (given or {}).get("reason", ""))

    def _retry(self, given: Any, step: Mapping[str, Any]) -> str:
        return self._assign(step, self._engine.retry(self._named(step, "of"), **(given or {})))

    def _rerun(self, given: Any, step: Mapping[str, Any]) -> str:
        run = self._engine.rerun(self._named(step, "of"), given["from"], item=given.get("item"))
        return self._assign(step, run)

    def _deploy(self, given: Any, step: Mapping[str, Any]) -> int:
        return self._engine.deploy(self._workflow(given["document"]), alias=given.get("alias"))

    def _advance(self, given: Any, step: Mapping[str, Any]) -> None:
        self._engine.advance(given)

    def _await(self, given: Any, step: Mapping[str, Any]) -> None:
        """Wait until the engine is idle; a condition that does not hold then cannot come true without time."""
        run = self._named(step)
        self._engine.settle()
        if not _holds(given, run):
            open_now = "; ".join(f"`{each.node}` {each.reason}" for each in run.explain()) or run.status
            raise CaseFailure([f"{given!r} does not hold without time passing: {open_now}"])

    def _expect(self, given: Any, step: Mapping[str, Any]) -> None:
        self._compare(self._named(step), msgspec.convert(given, Expectation))


def _fail(deviations: Sequence[str]) -> None:
    if deviations:
        raise CaseFailure(deviations)


def _check_refusal(step: Mapping[str, Any], refusal: RuneError | None, answer: Any) -> None:
    if refusal is None:
        raise CaseFailure([f"was accepted and returned {answer!r}, expected to be refused"])
    problems = refusal.problems if isinstance(refusal, InvalidDocumentError) else ()
    code = problems[0].code if problems else refusal.code
    if code != step["refused"]:
        raise CaseFailure([f"was refused with {code}, expected {step['refused']}: {refusal}"])
    _fail(
        [
            f"the refusal does not say {part!r}: {refusal}"
            for part in step.get("says", [])
            if part not in str(refusal)
        ]
    )


def _holds(given: Any, run: Run) -> bool:
    if isinstance(given, str):
        return run.status == given or (given == "ended" and run.ended)
    count = int(given.get("count", 1))
    if "node" in given:
        done = [each for each in run if each.node_id == given["node"] and each.status != "skipped"]
        return len(done) >= count
    word, prefix = ("waiting", "waits") if "waiting" in given else ("parked", "parked")
    item = given.get("item")
    found = [
        each
        for each in run.explain()
        if each.node == given[word] and each.reason.startswith(prefix) and item in (None, each.item)
    ]
    return len(found) >= count


class Recorded:
    """A recorded test: its workflow and input; its mocks are set in `engine.mocks`."""

    def __init__(self, case: Case, engine: EmbeddedEngine, folder: Path) -> None:
        self._case = case
        self._engine = engine
        source = case.workflow if case.workflow is not None else case.document
        assert source is not None, "load_cases requires one of the two"
        self.flow = Workflow.load(folder / source if isinstance(source, str) else source)
        self.input = case.input
        case.set_mocks(engine.mocks)

    def run(self, input: Any = None) -> Run:
        """Run the workflow with the recorded input, or with another one."""
        return self._engine.run(self.flow, self.input if input is None else input)

    def check(self, run: Run) -> None:
        """Raise AssertionError with all differences if an execution did not end as the recorded one."""
        if self._case.expect is not None:
            deviations = self._case.expect.deviations(run.result.document, self._engine.mocks)
            if deviations:
                raise AssertionError("\n".join(deviations))


def load_recorded(path: Path, engine: EmbeddedEngine) -> Recorded:
    """Load a file that `rune record` wrote and set its mocks."""
    cases = load_cases(path)
    if len(cases) != 1:
        raise ValueError(f"{path} has {len(cases)} tests; a recording is one")
    return Recorded(cases[0], engine, path.parent)
