"""Execution messages that other programs publish without a token of this engine.

A message for an unknown execution starts it: as a whole if it names an entry node and carries only the start payload,
otherwise at the named node with the outputs that it carries. A message for a known execution is redundant and ignored
if it is of this execution: its start is compared with the recorded one. Of two messages that are handled at the same
time, the journal tells which one started the execution, and the other is compared with it. A message that cannot be
interpreted is rejected with a code and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from rune.codec.decode import decode
from rune.codec.messages import NodeExecutionMessage
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import text_problems
from rune.core.execution.fact import Fact, NodeResult
from rune.core.execution.stored_value import Inline, StoredValue
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS
from rune.core.permissions import QUEUE
from rune.core.plan.model import Plan
from rune.errors import InvalidDocumentError, LimitExceededError, RuneError
from rune.ports.journal import ExecutionRecord
from rune.ports.queue import LeftToOthersError
from rune.runtime.backend import Backend
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.lifecycle.launcher import Launcher
from rune.runtime.messaging.seeder import ExecutionSeeder
from rune.runtime.payloads import check_start, for_size, same_payload
from rune.runtime.plan_cache import MissingNodeTypeError, PlanCache
from rune.runtime.stored_values import store_start
from rune.runtime.worker.worker import MISSING_TYPE_TIMEOUT_S, MissingTypeTracker
from rune.telemetry.tracing import read_header

log = logging.getLogger("rune.foreign_messages")

START_NAMES = ("$trigger", "$input")
RESERVED_NAMES = frozenset({*START_NAMES, "$json", "$execution", "$error"})
"""Names in a context that are not outputs of nodes. `$json` and `$execution` follow from the message."""

Outputs = dict[str, msgspec.Raw]
_OUTPUTS = JsonDecoder(Outputs)


class UnknownScopeError(RuneError):
    """A message for a node inside a fan-out, or behind a join, of an unknown execution."""

    code = "UNKNOWN_SCOPE"


class DefinitionMismatchError(RuneError):
    """A message for an execution that was started from another definition."""

    code = "DEFINITION_MISMATCH"


class InputMismatchError(RuneError):
    """A message for an execution that was started with another payload, or with other outputs of nodes."""

    code = "INPUT_MISMATCH"


class UnknownTypeError(RuneError):
    """A message whose definition uses a node type that no worker has."""

    code = "UNKNOWN_TYPE"


class UnknownNodeError(RuneError):
    """A message that names a node which its definition does not have."""

    code = "UNKNOWN_NODE"


class ForeignMessages:
    """Starts executions from messages of other programs."""

    def __init__(self, backend: Backend, plans: PlanCache, launcher: Launcher) -> None:
        self._journal = backend.journal
        self._blob = backend.blob
        self._plans = plans
        self._launcher = launcher
        self._missing_types = MissingTypeTracker(backend.processes)

    async def take(self, message: NodeExecutionMessage, body: bytes) -> None:
        """Start the execution of a message; the start is durable when this returns. LeftToOthersError if this process
        lacks a node type."""
        try:
            plan = await self._plan(message)
        except MissingNodeTypeError as error:
            if await self._journal.end(message.execution_id) is not None:
                log.info("ignoring a message for %s, which has ended", message.execution_id)
                return
            if not await self._missing_types.expired(message.execution_id, error.type):
                raise LeftToOthersError(error.message) from None
            raise UnknownTypeError(
                f"no worker has had the node type `{error.type}` for {MISSING_TYPE_TIMEOUT_S:.0f} s"
            ) from None
        _check_nodes(message, plan)
        node = plan.index[message.current_node]
        outputs = await for_size(_size(message), partial(_checked_outputs, message))
        if _given_error(outputs) is None:
            outputs.pop("$error", None)
        known = await self._journal.accepted(message.execution_id)
        if known is None:
            if isinstance(message.definition_ref, str):
                raise ExecutionNotFoundError(
                    f"no execution has the id {message.execution_id}, and the message carries no definition"
                )
            self._check_placeable(message, plan)
        record = self._record(message, plan, await self._payload(plan, outputs))
        if self._is_beginning(plan, node, outputs):
            await self._start(record, plan, known)
        else:
            await self._start_at(message, record, plan, outputs, known)

    async def _plan(self, message: NodeExecutionMessage) -> Plan:
        if isinstance(message.definition_ref, str):
            return await self._plans.plan(message.definition_ref)
        definition = bytes(message.definition)  # type: ignore[arg-type]
        named = partial(_named, definition, message.workflow_id)
        return await self._plans.compile_given(await for_size(len(definition), named))

    def _is_beginning(self, plan: Plan, node: int, outputs: Outputs) -> bool:
        first = node in plan.entries or any(each in plan.triggers for each in plan.graph.predecessors(node))
        return first and all(name in START_NAMES or self._is_trigger(plan, name) for name in outputs)

    def _is_trigger(self, plan: Plan, name: str) -> bool:
        return plan.index.get(name[1:]) in plan.triggers

    def _check_placeable(self, message: NodeExecutionMessage, plan: Plan) -> None:
        """Raise UnknownScopeError if the node can only be located with knowledge of the execution."""
        node = plan.nodes[plan.index[message.current_node]]
        inside = bool(message.lineage) or node.depth > 0 or node.joins_items
        arrival = node.is_join and message.from_node is not None and not message.arrived
        if inside or arrival:
            raise UnknownScopeError(
                f"{message.execution_id} is unknown, so the scope of `{node.id}` in it cannot be determined"
            )

    async def _start(self, record: ExecutionRecord, plan: Plan, known: ExecutionRecord | None) -> None:
        known = known or await self._launcher.start_unless_known(record, plan)
        if known is not None:
            await self._check_same(known, record)

    async def _check_same(
        self, known: ExecutionRecord, given: ExecutionRecord, facts: Sequence[Fact] = ()
    ) -> None:
        """Raise an error if a recorded execution is not the one that a message describes by its record and the facts
        that it starts with."""
        if known.hash != given.hash:
            raise DefinitionMismatchError(
                f"{known.id} is an execution of another definition, or was started at another node"
            )
        if not await same_payload(self._blob, known.input, given.input):
            raise InputMismatchError(f"{known.id} was started with another payload")
        stored = await self._journal.facts(known.id, limit=len(facts)) if facts else []
        pairs = zip([each.fact for each in stored], facts, strict=False)
        if len(stored) < len(facts) or not all([await self._is_same_fact(*pair) for pair in pairs]):
            raise InputMismatchError(f"{known.id} was started with other outputs of nodes")
        log.info("ignoring a message for %s, which has been started", known.id)

    async def _is_same_fact(self, stored: Fact, given: Fact) -> bool:
        if type(stored) is not NodeResult or type(given) is not NodeResult:
            return False
        if replace(stored, at=given.at, value=given.value) != given:
            return False
        if stored.value is None or given.value is None:
            return stored.value is given.value
        return await same_payload(self._blob, stored.value, given.value)

    async def _payload(self, plan: Plan, outputs: Outputs) -> bytes:
        names = [*START_NAMES, *(f"${plan.ids[each]}" for each in sorted(plan.triggers))]
        payload = next((bytes(outputs[name]) for name in names if name in outputs), b"{}")
        await check_start(plan.definition, payload)
        return payload

    async def _start_at(
        self,
        message: NodeExecutionMessage,
        record: ExecutionRecord,
        plan: Plan,
        outputs: Outputs,
        known: ExecutionRecord | None,
    ) -> None:
        values = self._node_outputs(plan, outputs)
        error = _given_error(outputs)
        node = plan.index[message.current_node]
        seed = partial(ExecutionSeeder, plan, node, values, arrived=message.arrived or (), error=error)
        seeder = await for_size(_size(message), seed)
        seeded = seeder.compile(self._plans.catalogue)
        if known is not None and known.hash == plan.hash:
            # It was started as a whole: it runs this node, and what the message tells of others follows in it.
            await self._check_same(known, record)
            return
        record = replace(record, hash=seeded.hash)
        if known is None:
            stored = await self._store_values(message.execution_id, seeder.outputs)
            facts = seeder.facts(seeded, stored, record.at)
            if not seeder.starts_at_first(seeded, facts, record.at):
                raise UnknownScopeError(f"an execution cannot start at `{message.current_node}`")
            known = await self._launcher.start_unless_known(record, seeded, facts)
        if known is not None:
            given = {name: Inline(data) for name, data in seeder.outputs.items()}
            await self._check_same(known, record, seeder.facts(seeded, given, record.at))

    def _record(self, message: NodeExecutionMessage, plan: Plan, payload: bytes) -> ExecutionRecord:
        record = self._launcher.new_record(
            plan, payload, execution=message.execution_id, priority=message.priority
        )
        return replace(record, principal=QUEUE, trace=_trace(message))

    def _node_outputs(self, plan: Plan, outputs: Outputs) -> dict[str, bytes]:
        """Return the outputs in a message by node id, without the reserved names."""
        found: dict[str, bytes] = {}
        for name, value in outputs.items():
            if name in RESERVED_NAMES or self._is_trigger(plan, name):
                continue
            if name[1:] not in plan.index:
                raise UnknownNodeError(f"{plan.definition.id} has no node with the output `{name[:80]}`")
            found[name[1:]] = bytes(value).strip()
        return found

    async def _store_values(self, execution: str, values: dict[str, bytes]) -> dict[str, StoredValue]:
        """Store the outputs under digests of them, so that another message for this id does not change them."""
        return {name: await store_start(self._blob, execution, data) for name, data in values.items()}


def _check_nodes(message: NodeExecutionMessage, plan: Plan) -> None:
    """Raise UnknownNodeError if a field names a node that the definition does not have."""
    senders = () if message.from_node is None else (message.from_node,)
    splits = (each.split_node_id for each in message.lineage or ())
    for name in (message.current_node, *senders, *(message.arrived or ()), *splits):
        if name not in plan.index:
            raise UnknownNodeError(f"{plan.definition.id} has no node `{name[:80]}`")
    before = {plan.ids[plan.src[edge]] for edge in plan.nodes[plan.index[message.current_node]].in_edges}
    for name in message.arrived or ():
        if name not in before:
            raise UnknownNodeError(
                f"`arrived` names `{name}`, from which no edge leads to `{message.current_node}`"
            )


def _given_error(outputs: Outputs) -> bytes | None:
    """Return `$error` of a message; None if it has none, or null."""
    if "$error" not in outputs:
        return None
    found = bytes(outputs["$error"]).strip()
    return None if found == b"null" else found


def _size(message: NodeExecutionMessage) -> int:
    return len(bytes(message.context))


def _named(definition: bytes, workflow: str) -> bytes:
    """Return a definition with the id of its workflow."""
    document = decode(_OUTPUTS, definition)
    document["id"] = msgspec.Raw(msgspec.json.encode(workflow))
    return msgspec.json.encode(document)


def _checked_outputs(message: NodeExecutionMessage) -> Outputs:
    """Return the values in a message, as text. They have the limits of a start payload, together and each."""
    outputs = decode(_OUTPUTS, message.context)
    size = sum(len(bytes(each)) for each in outputs.values())
    if size > LIMITS.payload_bytes:
        raise LimitExceededError("bytes of the values in `accumulated_context`", LIMITS.payload_bytes, size)
    for name, value in outputs.items():
        problems = text_problems(bytes(value))
        if problems:
            raise InvalidDocumentError(tuple(_placed(each, name) for each in problems))
    return outputs


def _placed(problem: Problem, name: str) -> Problem:
    """Return a problem of a value with the path of the value in its message."""
    inner = problem.path.removeprefix("input")
    path = f"accumulated_context.{name[:80]}"
    joined = f"{path}{inner}" if inner.startswith((".", "[")) or not inner else f"{path}.{inner}"
    return replace(problem, path=joined)


def _trace(message: NodeExecutionMessage) -> str:
    """Return the trace context of a message, or an empty string if it has none or an invalid one."""
    context = read_header(message.traceparent) if message.traceparent else None
    return "" if context is None else context.header()
