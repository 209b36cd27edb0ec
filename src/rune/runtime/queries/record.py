"""Make a test of a recorded execution: its workflow, its input, mocks with what its nodes returned, and its outcome.

The test is data, in the format of `rune test`. Nodes that act on something outside of the engine are mocked, as are
those that wait for a signal or start another workflow; all others run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from rune.core.definition.model import Definition
from rune.core.definition.model import Node as DefinedNode
from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.json_decoder import read_json
from rune.core.limits import LIMITS
from rune.errors import InvalidDocumentError, LimitExceededError, RuneError
from rune.nodes.registry import Registry, has_outside_effects
from rune.off_loop import off_loop
from rune.ports.queries import Summary
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.queries.history import RUNS_PER_TURN

ATTEMPT_FAILED = "ATTEMPT_FAILED"
"""The code of a mocked attempt whose own code the document of an execution does not have."""

MAX_TEST_BYTES = LIMITS.output_bytes
"""Of the values above 64 KiB in one test."""

MAX_INDENTED_BYTES = 1024 * 1024


class NotRecordableError(RuneError):
    """An execution cannot become a test."""

    code = "NOT_RECORDABLE"


class ExecutionDocument(Protocol):
    """The history of one execution."""

    async def document(self) -> dict[str, Any]:
        """Return the document that `rune show --json` prints."""

    async def run_output(self, node: str, item: str = "", /) -> bytes:
        """Return the whole output of a node run as JSON."""

    async def start_payload(self) -> bytes:
        """Return the whole start payload as JSON."""


class RecordedExecutions(Protocol):
    """What a test is made of; the reader of the stores and that of a server have it."""

    async def execution(self, execution: str, /) -> Summary | None:
        """Return an execution; None if no execution has this id."""

    async def definition(self, hash: str, /) -> bytes | None:
        """Return a definition in canonical form."""

    async def history(self, execution: str, /) -> ExecutionDocument:
        """Return the history of an execution."""


async def record_test(
    reader: RecordedExecutions, registry: Registry, execution: str, *, node: str | None = None, item: str = ""
) -> bytes:
    """Return the test of an execution that has ended, as JSON text. With `node` the test expects the result of this
    node as well, in an item such as `users:5`."""
    summary = await reader.execution(execution)
    if summary is None:
        raise ExecutionNotFoundError(f"no execution has the id {execution}")
    canonical = await reader.definition(summary.hash)
    if canonical is None:
        raise DefinitionNotFoundError(f"the definition of {execution} is not stored")
    history = await reader.history(execution)
    document = await history.document()
    definition = read_json(canonical)
    await _fill(document, history, _mocked(definition, registry) | {node or ""})

    def recorded() -> bytes:
        case = recorded_case(document, definition, registry)
        if node is not None:
            case["expect"]["nodes"] = [_expected_run(document, node, item)]
        return _indented(msgspec.json.encode(case))

    return await off_loop(recorded)


async def _fill(document: dict[str, Any], history: ExecutionDocument, nodes: set[str]) -> None:
    """Put whole values where the document has references: the start payload, and the outputs of some nodes."""
    left = MAX_TEST_BYTES

    async def whole(shown: Any, read: Callable[[], Awaitable[bytes]]) -> Any:
        nonlocal left
        reference = read_json(shown) if isinstance(shown, msgspec.Raw) else shown
        if isinstance(reference, dict) and reference.keys() == {"$ref", "bytes"}:
            left -= int(reference["bytes"])
            if left < 0:
                raise LimitExceededError("bytes of the recorded test", MAX_TEST_BYTES)
            return msgspec.Raw(await read())
        return shown

    context = document["context"]
    context["$trigger"] = await whole(context["$trigger"], history.start_payload)
    for count, run in enumerate(document["nodes"]):
        if count % RUNS_PER_TURN == 0:
            await asyncio.sleep(0)
        if run["node_id"] in nodes and run["status"] == "success":
            run["output"] = await whole(
                run["output"], partial(history.run_output, run["node_id"], _item(run))
            )


def _mocked(definition: dict[str, Any], registry: Registry) -> set[str]:
    parsed = parse_data(Decoded(dict(definition))).definition
    return set() if parsed is None else {each.id for each in parsed.nodes if _is_mocked(each, registry)}


def _indented(text: bytes) -> bytes:
    """Return JSON text for people to read and edit. A large one is not indented: what is nested deeply would grow many
    times."""
    return msgspec.json.format(text, indent=2) if len(text) <= MAX_INDENTED_BYTES else text


def recorded_case(
    document: Mapping[str, Any], definition: Mapping[str, Any], registry: Registry
) -> dict[str, Any]:
    """Return the test of an execution that has ended: `document` is what `rune show --json` prints of it."""
    if document["completed_at"] is None:
        raise NotRecordableError(
            f"{document['execution_id']} is {document['status']}: only an execution that has ended can become a test"
        )
    if document["status"] == "cancelled":
        raise NotRecordableError(
            f"{document['execution_id']} was cancelled: its test would not be, and would end differently"
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
        if run["lineage"]:
            found.setdefault(node.id, {"items": {}})["items"][_item(run)] = answers
        else:
            found[node.id] = answers
    return found


def _item(run: Mapping[str, Any]) -> str:
    """Return the item of a run, such as `users:5/orders:2`; empty outside of splits."""
    return "/".join(f"{each['split_node_id']}:{each['item_index']}" for each in run["lineage"])


def _expected_run(document: Mapping[str, Any], node: str, item: str) -> dict[str, Any]:
    for run in document["nodes"]:
        if run["node_id"] == node and _item(run) == item:
            found = {"node_id": node, "item": item, "status": run["status"]}
            if run["error"] is not None:
                return found | {"error_code": run["error"]["code"]}
            return found | ({"output": run["output"]} if run["status"] == "success" else {})
    where = f"`{node}` of item {item}" if item else f"`{node}`"
    raise RuneError(f"{where} did not run in {document['execution_id']}", code="UNKNOWN_RUN")


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
