"""Strangers: messages that somebody else wrote by hand, without a token.

One of an execution that nobody knows starts it: as a whole where it names the beginning and brings nothing but the
start payload, else from the node that it names, with the outputs that it brings. One of an execution that is known is
a hint that is not needed. Whatever cannot be understood is refused with a code, and starts and ends nothing.
"""

from __future__ import annotations

import logging

import msgspec

from rune.core.plan import Plan
from rune.core.rights import QUEUE
from rune.documents import check_input
from rune.errors import InvalidDocument, RuneError
from rune.ports.journal import FORMAT, Accepted
from rune.runtime.backend import Backend
from rune.runtime.book import kept_bytes
from rune.runtime.books import UnknownExecution
from rune.runtime.legacy import LegacyLauncher
from rune.runtime.planbook import Planbook
from rune.runtime.seeding import Seeding
from rune.telemetry.context import read_header
from rune.wire.codec import Kept, encode_value
from rune.wire.rabbit import NodeExecutionMessage

log = logging.getLogger("rune.strangers")

OF_THE_START = ("$trigger", "$input")
NO_OUTPUTS = frozenset({*OF_THE_START, "$json", "$execution", "$error"})
"""Names in a context that are no node's."""


class UnknownScope(RuneError):
    """A message for a place inside an execution that nobody knows."""

    code = "UNKNOWN_SCOPE"


class OtherDefinition(RuneError):
    """A message for an execution of something else."""

    code = "DEFINITION_MISMATCH"


class UnknownNode(RuneError):
    """A message for a node that its definition does not have."""

    code = "UNKNOWN_NODE"


Outputs = dict[str, msgspec.Raw]


class Strangers:
    """Takes such messages."""

    def __init__(self, backend: Backend, plans: Planbook, launcher: LegacyLauncher) -> None:
        self._journal = backend.journal
        self._blob = backend.blob
        self._clock = backend.clock
        self._plans = plans
        self._launcher = launcher

    async def take(self, message: NodeExecutionMessage, body: bytes) -> None:
        """Do what it says; when this returns, the start is durable."""
        plan = await self._plan(message)
        node = plan.index.get(message.current_node)
        if node is None:
            raise UnknownNode(f"`{message.current_node[:80]}` is no node of {plan.definition.id}")
        outputs = msgspec.json.decode(message.context, type=Outputs)
        known = await self._journal.accepted(message.execution_id)
        if known is None and isinstance(message.definition_ref, str):
            raise UnknownExecution(
                f"no execution has the id {message.execution_id}, and no definition came with it"
            )
        if self._is_beginning(plan, node, outputs):
            await self._start(message, plan, outputs, known)
        else:
            await self._start_within(message, plan, node, outputs, known)

    async def _plan(self, message: NodeExecutionMessage) -> Plan:
        if isinstance(message.definition_ref, str):
            return await self._plans.plan(message.definition_ref)
        document = msgspec.json.decode(bytes(message.definition), type=dict[str, msgspec.Raw])  # type: ignore[arg-type]
        document["id"] = msgspec.Raw(msgspec.json.encode(message.workflow_id))
        return self._plans.examined(msgspec.json.encode(document))

    def _is_beginning(self, plan: Plan, node: int, outputs: Outputs) -> bool:
        first = node in plan.entries or any(each in plan.triggers for each in plan.graph.predecessors(node))
        return first and all(name in OF_THE_START or self._is_trigger(plan, name) for name in outputs)

    def _is_trigger(self, plan: Plan, name: str) -> bool:
        return plan.index.get(name[1:]) in plan.triggers

    def _unknown(self, message: NodeExecutionMessage, plan: Plan) -> None:
        """Refuse what only somebody could place who knows the execution."""
        node = plan.nodes[plan.index[message.current_node]]
        inside = bool(message.lineage) or node.depth > 0 or node.joins_items
        if inside or (node.is_join and message.from_node is not None):
            raise UnknownScope(
                f"nothing is known of {message.execution_id}, so `{node.id}` cannot be placed in it"
            )

    def _same(self, known: Accepted, *plans: Plan) -> None:
        if known.hash not in [each.hash for each in plans]:
            raise OtherDefinition(f"{known.id} is an execution of another definition")
        log.info("a message for %s is not needed: it has been started", known.id)

    async def _start(
        self, message: NodeExecutionMessage, plan: Plan, outputs: Outputs, known: Accepted | None
    ) -> None:
        if known is None:
            self._unknown(message, plan)
            payload = self._payload(plan, outputs)
            await self._launcher.start_here(
                plan,
                payload,
                execution=message.execution_id,
                priority=message.priority,
                principal=QUEUE,
                trace=_trace(message),
            )
        else:
            self._same(known, plan)

    def _payload(self, plan: Plan, outputs: Outputs) -> bytes:
        names = [*OF_THE_START, *(f"${plan.ids[each]}" for each in sorted(plan.triggers))]
        payload = next((bytes(outputs[name]) for name in names if name in outputs), b"{}")
        _, problems = check_input(plan.definition, payload)
        if problems:
            raise InvalidDocument(tuple(problems))
        return payload

    async def _start_within(
        self, message: NodeExecutionMessage, plan: Plan, node: int, outputs: Outputs, known: Accepted | None
    ) -> None:
        if known is None:
            self._unknown(message, plan)
        given = self._given(plan, outputs)
        seeding = Seeding(plan, node, frozenset(given))
        made = seeding.compiled(self._plans.catalogue)
        if known is not None:
            self._same(known, plan, made)
            return
        at = self._clock.now()
        values = await self._kept(message.execution_id, given)
        facts = seeding.facts(made, values, at)
        if not seeding.begins(made, facts, at):
            raise UnknownScope(f"`{message.current_node}` cannot be where an execution begins")
        priority = message.priority
        wanted = Accepted(
            id=message.execution_id,
            trace=_trace(message),
            workflow=plan.definition.id,
            hash=made.hash,
            at=at,
            input=self._payload(plan, outputs),
            priority=plan.definition.settings.priority if priority is None else priority,
            principal=QUEUE,
            format=FORMAT,
        )
        await self._launcher.start_again(wanted, made, facts)

    def _given(self, plan: Plan, outputs: Outputs) -> dict[str, bytes]:
        """The outputs that nodes of the definition are said to have made."""
        found: dict[str, bytes] = {}
        for name, value in outputs.items():
            if name in NO_OUTPUTS or self._is_trigger(plan, name):
                continue
            if name[1:] not in plan.index:
                raise UnknownNode(f"`{name[:80]}` is an output of no node of {plan.definition.id}")
            found[name[1:]] = encode_value(msgspec.json.decode(value))
        return found

    async def _kept(self, execution: str, given: dict[str, bytes]) -> dict[str, Kept]:
        return {
            name: await kept_bytes(self._blob, f"{execution}/{name}@/", data) for name, data in given.items()
        }


def _trace(message: NodeExecutionMessage) -> str:
    """The trace that the message belongs to; one that cannot be read is as if it were not there."""
    found = read_header(message.traceparent) if message.traceparent else None
    return "" if found is None else found.header()
