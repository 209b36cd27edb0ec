"""The small world a state is tried in: two plans, and one execution before a state and its journal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from rune.core.effect import Decision
from rune.core.outcome import Output
from rune.core.plan import Plan
from rune.core.step import step
from rune.core.token import Token
from rune.ports.journal import Accepted, Journal
from rune.ports.state import Applied, State
from rune.testing.clock import VirtualClock
from rune.testing.harness import compiled
from rune.wire.codec import Inline

Nodes = Mapping[str, Any]


def _document(*nodes: Nodes) -> dict[str, Any]:
    listed = [{"id": "in", "type": "input"}, *nodes]
    edges = [{"src": a["id"], "dst": b["id"]} for a, b in pairwise(listed)]
    return {"id": "chain", "nodes": listed, "edges": edges}


@cache
def chain() -> Plan:
    """in → a → b → c, of which b has an effect."""
    effect = {"id": "b", "type": "noop", "parameters": {"effectful": True}}
    return compiled(_document({"id": "a", "type": "noop"}, effect, {"id": "c", "type": "noop"}))


@cache
def joined() -> Plan:
    """in → {a, b} → c, which gives up after a minute."""
    nodes = [
        {"id": "in", "type": "input"},
        {"id": "a", "type": "noop"},
        {"id": "b", "type": "noop"},
        {"id": "c", "type": "merge", "parameters": {"timeout": 60}},
    ]
    pairs = (("in", "a"), ("in", "b"), ("a", "c"), ("b", "c"))
    return compiled({"id": "joined", "nodes": nodes, "edges": [{"src": a, "dst": b} for a, b in pairs]})


class World(msgspec.Struct):
    """One execution before a state and the journal it is a fold of."""

    journal: Journal
    state: State
    clock: VirtualClock
    plan: Plan

    async def accept(self, execution: str = "x", **given: Any) -> Applied:
        fields = {"workflow": "w", "hash": self.plan.hash, "at": self.clock.now(), "input": b"{}", **given}
        await self.journal.accept(Accepted(id=execution, **fields))
        return await self.state.begin(execution)

    def decision(self, token: Token, outcome: Any = None) -> Decision:
        return step(self.plan, token, outcome or Output(Inline(b"1")), self.clock.now())

    async def journaled(self, decision: Decision, execution: str = "x") -> Decision:
        assert decision.fact is not None
        await self.journal.record(execution, [decision.fact])
        return decision

    async def done(self, token: Token, outcome: Any = None, execution: str = "x") -> Applied:
        decision = await self.journaled(self.decision(token, outcome), execution)
        return await self.state.apply(execution, [decision])

    def node(self, name: str) -> int:
        return self.plan.index[name]
