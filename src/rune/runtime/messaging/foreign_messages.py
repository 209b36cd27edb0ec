"""Seeding: an execution that begins in the middle, with outputs that somebody else has made.

Its definition is what can be reached from the node it begins with. Of the rest only the nodes stay, as stand-ins that
hold the outputs that were given; edges from them into what is reached are gone, but for those that lead to the first
node. Whatever has no output is skipped. Nothing of this depends on when it is computed, so twins are the same.

Strangers: messages that somebody else wrote by hand, without a token.

One of an execution that nobody knows starts it: as a whole where it names the beginning and brings nothing but the
start payload, else from the node that it names, with the outputs that it brings. One of an execution that is known is
a hint that is not needed. Whatever cannot be understood is refused with a code, and starts and ends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from rune.codec.facts import StoredValue, encode_value
from rune.codec.messages import NodeExecutionMessage
from rune.core.definition.model import Definition, Edge, Node
from rune.core.execution.fact import ExecutionStarted, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.token import ROOT, START, Ref
from rune.core.node_type import Catalogue
from rune.core.permissions import QUEUE
from rune.core.plan.compiler import compile_definition
from rune.core.plan.graph import reachable
from rune.core.plan.model import Plan
from rune.documents.loader import check_input
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.journal import FORMAT, ExecutionRecord
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.launcher import LegacyLauncher
from rune.runtime.plan_cache import PlanCache
from rune.runtime.values import ExecutionNotFoundError, store_value
from rune.telemetry.tracing import read_header

PLACEHOLDER = "noop"


class ExecutionSeeder:
    """What a plan becomes that begins with one of its nodes, given outputs of others by their ids."""

    def __init__(self, plan: Plan, first: int, given: frozenset[str]) -> None:
        self._plan = plan
        self._first = first
        self._reached = reachable(plan.graph, [first])
        order = [
            each for each in plan.graph.order if each not in self._reached and not plan.nodes[each].depth
        ]
        self._triggers = [each for each in order if each in plan.triggers]
        others = [each for each in order if each not in plan.triggers]
        before = set(plan.graph.predecessors(first))
        held = [each for each in others if plan.ids[each] in given]
        # Those that lead to the first node come last, so that there is a path from every one of them.
        self._held = [each for each in held if each not in before] + [each for each in held if each in before]
        self._leading = [each for each in self._held if each in before]
        self._empty = [each for each in others if plan.ids[each] not in given]

    def compiled(self, catalogue: Catalogue) -> Plan:
        """The plan of the execution."""
        return compile_definition(self.definition, catalogue)

    @property
    def definition(self) -> Definition:
        whole = self._plan.definition
        stand_ins = {*self._held, *self._empty}
        kept = {*self._reached, *self._triggers, *stand_ins}
        nodes = tuple(
            _placeholder_result(each) if index in stand_ins else each
            for index, each in enumerate(whole.nodes)
            if index in kept
        )
        inner = (
            each
            for index, each in enumerate(whole.edges)
            if self._plan.src[index] in self._reached and self._plan.dst[index] in self._reached
        )
        return replace(whole, nodes=nodes, edges=(*self._ways_in(), *inner))

    def _ways_in(self) -> list[Edge]:
        """One path through all that is given, and from its end, or from whoever led there, to the first node."""
        ids = self._plan.ids
        chain = [*self._triggers[:1], *self._held]
        pairs = list(pairwise(chain))
        pairs += [(each, self._first) for each in (self._leading or chain[-1:])]
        return [
            Edge(id=f"seed:{ids[source]}:{ids[target]}", src=ids[source], dst=ids[target])
            for source, target in pairs
        ]

    def facts(self, made: Plan, values: Mapping[str, StoredValue], at: int) -> list[Fact]:
        """What the execution begins with: outputs that were given, and skips."""
        ids = self._plan.ids
        found: list[Fact] = []
        for node in self._held:
            payload = (
                self._passed_on(node, made) if node in self._leading else self._entered(self._first, made)
            )
            index = made.index[ids[node]]
            found.append(
                NodeResult(index, ROOT, at, "ok", value=values[ids[node]], payload=payload, kept=True)
            )
        found += [NodeResult(made.index[ids[node]], ROOT, at, "skipped", kept=True) for node in self._empty]
        return found

    def _passed_on(self, node: int, made: Plan) -> Ref:
        """The payload behind a node: its output, or, of one that only routes, what entered it."""
        if node in self._plan.triggers:
            return START
        if node not in self._held or self._plan.nodes[node].passes_payload:
            return self._entered(node, made)
        return Ref("result", made.index[self._plan.ids[node]], ROOT)

    def _entered(self, node: int, made: Plan) -> Ref:
        before = [each for each in self._plan.graph.predecessors(node) if not self._plan.nodes[each].depth]
        chosen = next((each for each in before if each in self._held), before[0] if before else None)
        return START if chosen is None else self._passed_on(chosen, made)

    def begins(self, made: Plan, facts: list[Fact], at: int) -> bool:
        """Whether the first node, and nothing else, is left to run."""
        state, _ = fold(made, [ExecutionStarted(at), *facts], at)
        return set(state.scopes[ROOT].live) == {made.index[self._plan.ids[self._first]]}


def _placeholder_result(node: Node) -> Node:
    return Node(id=node.id, type=PLACEHOLDER, name=node.name)


log = logging.getLogger("rune.strangers")

OF_THE_START = ("$trigger", "$input")
NO_OUTPUTS = frozenset({*OF_THE_START, "$json", "$execution", "$error"})
"""Names in a context that are no node's."""


class UnknownScopeError(RuneError):
    """A message for a place inside an execution that nobody knows."""

    code = "UNKNOWN_SCOPE"


class DefinitionMismatchError(RuneError):
    """A message for an execution of something else."""

    code = "DEFINITION_MISMATCH"


class UnknownNodeError(RuneError):
    """A message for a node that its definition does not have."""

    code = "UNKNOWN_NODE"


Outputs = dict[str, msgspec.Raw]


class ForeignMessages:
    """Takes such messages."""

    def __init__(self, backend: Backend, plans: PlanCache, launcher: LegacyLauncher) -> None:
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
            raise UnknownNodeError(f"`{message.current_node[:80]}` is no node of {plan.definition.id}")
        outputs = msgspec.json.decode(message.context, type=Outputs)
        known = await self._journal.accepted(message.execution_id)
        if known is None and isinstance(message.definition_ref, str):
            raise ExecutionNotFoundError(
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
        return self._plans.compile_untrusted(msgspec.json.encode(document))

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
            raise UnknownScopeError(
                f"nothing is known of {message.execution_id}, so `{node.id}` cannot be placed in it"
            )

    def _same(self, known: ExecutionRecord, *plans: Plan) -> None:
        if known.hash not in [each.hash for each in plans]:
            raise DefinitionMismatchError(f"{known.id} is an execution of another definition")
        log.info("a message for %s is not needed: it has been started", known.id)

    async def _start(
        self, message: NodeExecutionMessage, plan: Plan, outputs: Outputs, known: ExecutionRecord | None
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
            raise InvalidDocumentError(tuple(problems))
        return payload

    async def _start_within(
        self,
        message: NodeExecutionMessage,
        plan: Plan,
        node: int,
        outputs: Outputs,
        known: ExecutionRecord | None,
    ) -> None:
        if known is None:
            self._unknown(message, plan)
        given = self._given_outputs(plan, outputs)
        seeding = ExecutionSeeder(plan, node, frozenset(given))
        made = seeding.compiled(self._plans.catalogue)
        if known is not None:
            self._same(known, plan, made)
            return
        at = self._clock.now()
        values = await self._kept(message.execution_id, given)
        facts = seeding.facts(made, values, at)
        if not seeding.begins(made, facts, at):
            raise UnknownScopeError(f"`{message.current_node}` cannot be where an execution begins")
        priority = message.priority
        wanted = ExecutionRecord(
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

    def _given_outputs(self, plan: Plan, outputs: Outputs) -> dict[str, bytes]:
        """The outputs that nodes of the definition are said to have made."""
        found: dict[str, bytes] = {}
        for name, value in outputs.items():
            if name in NO_OUTPUTS or self._is_trigger(plan, name):
                continue
            if name[1:] not in plan.index:
                raise UnknownNodeError(f"`{name[:80]}` is an output of no node of {plan.definition.id}")
            found[name[1:]] = encode_value(msgspec.json.decode(value))
        return found

    async def _kept(self, execution: str, given: dict[str, bytes]) -> dict[str, StoredValue]:
        return {
            name: await store_value(self._blob, f"{execution}/{name}@/", data) for name, data in given.items()
        }


def _trace(message: NodeExecutionMessage) -> str:
    """The trace that the message belongs to; one that cannot be read is as if it were not there."""
    found = read_header(message.traceparent) if message.traceparent else None
    return "" if found is None else found.header()
