"""Seeding: an execution that begins in the middle, with outputs that somebody else has made.

Its definition is what can be reached from the node it begins with. Of the rest only the nodes stay, as stand-ins that
hold the outputs that were given; edges from them into what is reached are gone, but for those that lead to the first
node. Whatever has no output is skipped. Nothing of this depends on when it is computed, so twins are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from msgspec.structs import replace

from rune.core.compile import compile_definition
from rune.core.definition import Definition, Edge, Node
from rune.core.fact import Fact, Result, Start
from rune.core.fold import fold
from rune.core.graph import reachable
from rune.core.lineage import ROOT
from rune.core.nodetype import Catalogue
from rune.core.plan import Plan
from rune.core.token import START, Ref
from rune.wire.codec import Kept

STAND_IN = "noop"


class Seeding:
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
            _stand_in(each) if index in stand_ins else each
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

    def facts(self, made: Plan, values: Mapping[str, Kept], at: int) -> list[Fact]:
        """What the execution begins with: outputs that were given, and skips."""
        ids = self._plan.ids
        found: list[Fact] = []
        for node in self._held:
            payload = (
                self._passed_on(node, made) if node in self._leading else self._entered(self._first, made)
            )
            index = made.index[ids[node]]
            found.append(Result(index, ROOT, at, "ok", value=values[ids[node]], payload=payload, kept=True))
        found += [Result(made.index[ids[node]], ROOT, at, "skipped", kept=True) for node in self._empty]
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
        state, _ = fold(made, [Start(at), *facts], at)
        return set(state.scopes[ROOT].live) == {made.index[self._plan.ids[self._first]]}


def _stand_in(node: Node) -> Node:
    return Node(id=node.id, type=STAND_IN, name=node.name)
