"""Make a test of a recorded execution: its workflow, its input, mocks with what its nodes returned, and its outcome.

The test is data, in the format of `rune test`. Nodes that act on something outside of the engine are mocked, as are
those that wait for a signal or start another workflow; all others run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rune.build.flow import Workflow
from rune.core.definition.model import Definition
from rune.core.definition.model import Node as DefinedNode
from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import Registry
from rune.testing.cases import Case, load_cases
from rune.testing.engine import EmbeddedEngine, Run
from rune.testing.mocks import has_outside_effects

ATTEMPT_FAILED = "ATTEMPT_FAILED"
"""The code of a mocked attempt whose own code the document of an execution does not have."""


class NotRecordableError(RuneError):
    """An execution cannot become a test."""

    code = "NOT_RECORDABLE"


def recorded_case(
    document: Mapping[str, Any], definition: Mapping[str, Any], registry: Registry
) -> dict[str, Any]:
    """Return the test of an execution that has ended: `document` is what `rune show --json` prints of it."""
    if document["completed_at"] is None:
        raise NotRecordableError(
            f"{document['execution_id']} is {document['status']}: only an execution that has ended can become a test"
        )
    parsed = parse_data(Decoded(dict(definition)))
    if parsed.definition is None:
        raise InvalidDocumentError(parsed.problems)
    return {
        "case": f"{document['workflow_id']} as in {document['execution_id']}",
        "document": dict(definition),
        "input": document["context"]["$trigger"],
        "mocks": _mocks(document, parsed.definition, registry),
        "expect": _expected(document),
    }


def _expected(document: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"status": document["status"]}
    if document["status"] == "completed":
        found["output"] = document["output"]
    if document["error"]:
        found["error_contains"] = [document["error"]["code"]]
    if document["failed_items"]:
        found["failed_items"] = document["failed_items"]
    return found


def _mocks(document: Mapping[str, Any], definition: Definition, registry: Registry) -> dict[str, Any]:
    nodes = {each.id: each for each in definition.nodes if _is_mocked(each, registry)}
    found: dict[str, Any] = {}
    for run in document["nodes"]:
        node = nodes.get(run["node_id"])
        if node is None or run["status"] not in ("success", "failed"):
            continue
        answers = _answers(run, node)
        if not run["lineage"]:
            found[node.id] = answers
            continue
        index = str(run["lineage"][-1]["item_index"])
        items = found.setdefault(node.id, {"items": {}})["items"]
        if items.setdefault(index, answers) != answers:
            raise NotRecordableError(
                f"`{node.id}` ran in nested splits and item {index} of the inner one did not always return the same: "
                "mocks tell items apart by the innermost split only"
            )
    return found


def _is_mocked(node: DefinedNode, registry: Registry) -> bool:
    """Whether a node is mocked: it acts outside of the engine, waits for a signal, starts a workflow, or has an unknown
    type."""
    if node.type not in registry:
        return True
    kind = registry[node.type]
    if kind.type.launches or has_outside_effects(kind, node.parameters):
        return True
    return kind.type.suspends and kind.type.signals(node.id, node.parameters) != ()


def _answers(run: Mapping[str, Any], node: DefinedNode) -> Any:
    """Return what a node answered: its failed attempts, then its output or last error."""
    error = run["error"]
    if error is not None:
        return {"fails": {"code": error["code"], "message": error["message"]}}
    answer = {"returns": run["output"]}
    failed = run["attempts"] - 1
    if not failed:
        return answer
    code = node.retry.on[0] if node.retry is not None and node.retry.on else ATTEMPT_FAILED
    return [{"fails": {"code": code, "message": "an attempt failed"}, "times": failed}, answer]


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
