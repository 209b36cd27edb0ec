"""Executions that start at a node in the middle: their definition, and facts in place of what ran before.

What ran before the first node is known by its outputs alone. Which edges carried something, what they carried, and what
failed on the way follows from them as in an execution that ran: a node that chose an outlet says so in its output, a
failure is written `{"error": {…}}`, a join of several payloads has the object of them as its payload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.codec.decode import MalformedDataError, decode
from rune.codec.facts import decode_value, encode_value
from rune.core.definition.model import Definition, Edge, Node
from rune.core.definition.problems import WRONG_VALUE, Problem
from rune.core.execution.fact import ExecutionStarted, Fact, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.stored_value import StoredValue
from rune.core.execution.token import ROOT, START, Arrived, Ref
from rune.core.json_decoder import JsonDecoder
from rune.core.node_type import Catalogue
from rune.core.plan.compiler import compile_definition
from rune.core.plan.graph import ancestors, reachable
from rune.core.plan.model import NodePlan, Plan
from rune.errors import InvalidDocumentError
from rune.nodes.base import bounded_error

PLACEHOLDER = "noop"


class _Failure(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    message: str
    details: dict[str, msgspec.Raw] = {}


class _Failed(msgspec.Struct, forbid_unknown_fields=True):
    error: _Failure


_FAILED = JsonDecoder(_Failed)


class ExecutionSeeder:
    """Derives the definition and first facts of an execution that starts at a node in the middle of a plan.

    The derived definition has everything reachable from that node. The other nodes stay as placeholders that hold the
    given outputs; their edges into the reachable part are removed, except those to the first node. A node without a
    given output is skipped. The result does not depend on time, so repeated messages derive the same definition.
    """

    def __init__(
        self,
        plan: Plan,
        first: int,
        outputs: Mapping[str, bytes],
        *,
        arrived: Collection[str] = (),
        error: bytes | None = None,
    ) -> None:
        """`outputs` are JSON by node id. `arrived` are the nodes whose payloads opened the first node, if it is a join
        and they are known. `error` is `$error` of the first node, if it is given."""
        self._plan = plan
        self._first = first
        self._reached = reachable(plan.graph, [first])
        self._before = [
            each for each in plan.graph.order if each not in self._reached and not plan.nodes[each].depth
        ]
        self.outputs = dict(outputs)
        self._outlets: dict[int, str | None] = {}
        self._failed = {each for each in self._before if self._held(each) and self._take_failure(each)}
        failed = None if error is None else self._place_error(bounded_error(decode_value(error)))
        self._triggers = [each for each in self._before if each in plan.triggers]
        self._into = self._entering(first, arrived)
        self._payloads: dict[int, Ref] = {}
        self._errors: dict[int, int | None] = {}
        self._joined: dict[int, tuple[int, ...]] = {}
        for node in self._before:
            self._payloads[node] = self._payload(node)
            self._errors[node] = self._error(node)
        self._entered = self._payload_of(self._first, self._into)
        self._error_before = failed if failed is not None else self._error_of(first, self._into)
        leading = self._leading()
        others = [each for each in self._before if each not in plan.triggers]
        held = [each for each in others if self._held(each)]
        # What leads to the first node comes last, so that a path leads from every placeholder to it.
        self._chain = [each for each in held if each not in leading] + [
            each for each in held if each in leading
        ]
        self._empty = [each for each in others if not self._held(each)]
        # The others may have payloads that come later on the path, but nobody reads what they pass on.
        self._joined = {node: edges for node, edges in self._joined.items() if node in leading}
        self._unread = set(self._chain) - leading
        if self._chain and len(self._into) <= 1 and not leading:
            self._into = ()

    def _held(self, node: int) -> bool:
        return node not in self._plan.triggers and self._plan.ids[node] in self.outputs

    def _take_failure(self, node: int) -> bool:
        """Return whether a node has failed, according to its output, which is bounded then."""
        if self._plan.nodes[node].policy not in ("branch", "ignore"):
            return False
        output = self.outputs[self._plan.ids[node]]
        try:
            decode(_FAILED, output)
        except MalformedDataError:
            return False
        self.outputs[self._plan.ids[node]] = encode_value(
            {"error": bounded_error(decode_value(output)["error"])}
        )
        return True

    def _place_error(self, wanted: Any) -> int:
        """Return the node that failed with a given error: one whose output it is, or else the last before the first
        node that may have failed and has no output, such as a split, whose output is never given."""
        plan = self._plan
        above = ancestors(plan.graph)[self._first]
        before = [each for each in reversed(self._before) if above >> each & 1]
        for node in before:
            if node in self._failed and decode_value(self.outputs[plan.ids[node]])["error"] == wanted:
                return node
        for node in before:
            may_fail = plan.nodes[node].policy in ("branch", "ignore") and node not in plan.triggers
            if may_fail and not self._held(node) and isinstance(wanted, dict):
                self.outputs[plan.ids[node]] = encode_value({"error": wanted})
                self._failed.add(node)
                return node
        message = f"no node before `{plan.ids[self._first]}` has failed with this error, or can have"
        raise InvalidDocumentError((Problem("accumulated_context.$error", WRONG_VALUE, message),))

    def _entering(self, node: int, arrived: Collection[str] = ()) -> tuple[int, ...]:
        """Return the edges into a node that carried a payload, as far as outputs tell. If they tell that none did, each
        of them may have."""
        plan = self._plan
        known = [
            edge
            for edge in plan.nodes[node].in_edges
            if self._held(plan.src[edge]) or plan.src[edge] in plan.triggers
        ]
        live = [edge for edge in known if self._is_alive(edge)]
        if arrived:
            live = [edge for edge in known if plan.ids[plan.src[edge]] in arrived]
        return tuple(live or known)

    def _is_alive(self, edge: int) -> bool:
        source = self._plan.nodes[self._plan.src[edge]]
        if source.index in self._plan.triggers:
            return True
        if source.index in self._failed:
            ignored = source.by_outlet.get(source.ignored, source.normal)
            return edge in (source.rescue if source.policy == "branch" else ignored)[0]
        outlet = self._outlet(source)
        if outlet in source.by_outlet:
            return edge in source.by_outlet[outlet][0]
        return edge not in source.error_edges

    def _outlet(self, source: NodePlan) -> str | None:
        """Return the outlet that a node chose; None if its output does not tell."""
        if source.index not in self._outlets:
            outlet_of = source.type.outlet_of
            output = None if outlet_of is None else decode_value(self.outputs[source.id])
            self._outlets[source.index] = None if outlet_of is None else outlet_of(output)
        return self._outlets[source.index]

    def _payload(self, node: int) -> Ref:
        """Return what the edges behind a node carry, in terms of this plan."""
        plan = self._plan
        if node in plan.triggers:
            return START
        planned = plan.nodes[node]
        passes = planned.passes_payload and not planned.type.reads_payload(planned.node.parameters)
        if self._held(node) and (node in self._failed or not passes):
            return Ref("result", node)
        edges = self._entering(node)
        if self._held(node) and planned.opens == "all" and len({plan.src[each] for each in edges}) > 1:
            self._joined[node] = edges
            return Ref("entered", node)
        return self._payload_of(node, edges)

    def _payload_of(self, node: int, edges: tuple[int, ...]) -> Ref:
        """Return what entered a node by the first of these edges, or else by any node before it."""
        plan = self._plan
        sources = [plan.src[each] for each in edges] or plan.graph.predecessors(node)
        return next((self._payloads[each] for each in sources if each in self._payloads), START)

    def _error(self, node: int) -> int | None:
        """Return the node whose failure is `$error` behind a node."""
        if node in self._failed:
            return node
        if node in self._plan.triggers:
            return None
        return self._error_of(node, self._entering(node))

    def _error_of(self, node: int, edges: tuple[int, ...]) -> int | None:
        """Return the node whose failure is `$error` in a node."""
        plan = self._plan
        sources = [plan.src[each] for each in edges] or plan.graph.predecessors(node)
        if plan.nodes[node].joins_items:
            sources = [plan.nodes[node].split_of]
        errors = (self._errors.get(each) for each in sources)
        return next((each for each in errors if each is not None), None)

    def _leading(self) -> set[int]:
        """Return the nodes with an output that the payload of the first node comes through."""
        found: set[int] = set()
        seen = {self._first}
        pending = [self._first]
        while pending:
            node = pending.pop()
            edges = self._into if node == self._first else self._entering(node)
            for source in [self._plan.src[each] for each in edges] or self._plan.graph.predecessors(node):
                if source not in seen and source in self._payloads:
                    seen.add(source)
                    pending.append(source)
                    if self._held(source):
                        found.add(source)
        return found

    def compile(self, catalogue: Catalogue) -> Plan:
        """Compile the derived definition."""
        return compile_definition(self.definition, catalogue)

    @property
    def definition(self) -> Definition:
        whole = self._plan.definition
        placeholders = {*self._chain, *self._empty}
        kept = {*self._reached, *self._triggers, *placeholders}
        nodes = tuple(
            _placeholder(each) if index in placeholders else each
            for index, each in enumerate(whole.nodes)
            if index in kept
        )
        inner = (
            each
            for index, each in enumerate(whole.edges)
            if self._plan.src[index] in self._reached and self._plan.dst[index] in self._reached
        )
        return replace(whole, nodes=nodes, edges=(*self._entry_edges(), *inner))

    def _entry_edges(self) -> Iterable[Edge]:
        """Return one path through all placeholders with an output, the edges into joins among them whose payload is an
        object, and those into the first node: by which its payload came, or else from the end of the path."""
        ids = self._plan.ids
        chain = [*self._triggers[:1], *self._chain]
        pairs = list(pairwise(chain))
        if not self._into:
            pairs += [(each, self._first) for each in chain[-1:]]
        for source, target in pairs:
            yield Edge(id=f"seed:{ids[source]}:{ids[target]}", src=ids[source], dst=ids[target])
        for node in self._chain:
            yield from map(self._plain, self._joined.get(node, ()))
        yield from map(self._plain, self._into)

    def _plain(self, edge: int) -> Edge:
        """Return an edge of the plan without its outlet: a placeholder has none."""
        whole = self._plan.definition.edges[edge]
        return Edge(id=whole.id, src=whole.src, dst=whole.dst)

    def facts(self, seeded: Plan, values: Mapping[str, StoredValue], at: int) -> list[Fact]:
        """Return the first facts of the execution: the given outputs, and skips."""
        ids = self._plan.ids

        def moved(ref: Ref) -> Ref:
            return ref if ref == START else Ref(ref.kind, seeded.index[ids[ref.node]])

        edges = {each.id: index for index, each in enumerate(seeded.definition.edges)}
        sources = {self._plan.src[each] for each in self._into}
        found: list[Fact] = []
        for node in self._chain:
            last = node in sources or (not self._into and node == self._chain[-1])
            failed = self._error_before if last else self._errors[node]
            payload = self._payloads[node]
            if last and not self._into:
                payload = self._entered
            elif node in self._unread:
                payload = Ref("result", node)
            arrived = tuple(
                Arrived(
                    edges[self._plan.definition.edges[each].id], moved(self._payloads[self._plan.src[each]])
                )
                for each in self._joined.get(node, ())
            )
            found.append(
                NodeResult(
                    seeded.index[ids[node]],
                    ROOT,
                    at,
                    "ok",
                    value=values[ids[node]],
                    payload=moved(payload),
                    error=None if failed is None else Ref("result", seeded.index[ids[failed]]),
                    arrived=arrived,
                    kept=True,
                )
            )
        found += [NodeResult(seeded.index[ids[node]], ROOT, at, "skipped", kept=True) for node in self._empty]
        return found

    def starts_at_first(self, seeded: Plan, facts: list[Fact], at: int) -> bool:
        """Return whether the first node, and nothing else, is left to run."""
        state, _ = fold(seeded, [ExecutionStarted(at), *facts], at)
        return set(state.scopes[ROOT].live) == {seeded.index[self._plan.ids[self._first]]}


def _placeholder(node: Node) -> Node:
    return Node(id=node.id, type=PLACEHOLDER, name=node.name)
