"""Run tests that are data, each on a new engine with a virtual clock in a temporary folder.

The fixture `rune_recorded` loads such a test, which `rune record` wrote, for a test in Python.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rune.build.flow import Workflow
from rune.core.definition.problems import did_you_mean
from rune.errors import InvalidDocumentError, RuneError
from rune.testing.cases import ACTIONS, Case, load_cases
from rune.testing.engine import EmbeddedEngine, Run
from rune.testing.expectations import Expectation, matches

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
                _Steps(case, engine, folder).run()
            except CaseFailure as failure:
                deviations = failure.deviations
            except InvalidDocumentError as error:
                deviations = tuple(each.text for each in error.problems)
            except (AssertionError, RuneError, OSError, KeyError, TypeError, ValueError) as error:
                deviations = (str(error) or type(error).__name__,)
    return CaseResult(case, deviations, time.perf_counter() - began)


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
