"""The small world a state is tried in: a few plans, and one execution before a state and its journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from rune.codec.facts import Inline
from rune.core.execution.decision import Decision
from rune.core.execution.fact import Fact, PauseChanged, SignalReceived
from rune.core.execution.outcome import FanOut, Output
from rune.core.execution.step import step
from rune.core.execution.token import Path as Lineage
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, Journal
from rune.ports.state import Applied, State
from rune.testing.clock import VirtualClock
from rune.testing.harness import compiled

Nodes = Mapping[str, Any]
Plans = Mapping[str, Plan]


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


@cache
def fan(at_once: int | None = None) -> Plan:
    """in → s, a split → w → g, the list of its items."""
    split = {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}}
    document = _document(split, {"id": "w", "type": "noop"}, {"id": "g", "type": "aggregator"})
    return compiled({**document, "settings": {"max_parallel": at_once} if at_once else {}})


@cache
def crowd() -> Plan:
    """in → {a, b, c, d, e}, of which two may run at once."""
    nodes = [{"id": "in", "type": "input"}, *({"id": each, "type": "noop"} for each in "abcde")]
    edges = [{"src": "in", "dst": each} for each in "abcde"]
    return compiled({"id": "crowd", "nodes": nodes, "edges": edges, "settings": {"max_parallel": 2}})


@cache
def hurried() -> Plan:
    """in → a → b, within a minute."""
    document = _document({"id": "a", "type": "noop"}, {"id": "b", "type": "noop"})
    return compiled({**document, "settings": {"timeout": 60}})


class World(msgspec.Struct):
    """One execution before a state and the journal it is a fold of."""

    journal: Journal
    state: State
    clock: VirtualClock
    plan: Plan
    anew: Callable[[], State]

    async def accept(self, execution: str = "x", kept: Sequence[Fact] = (), **given: Any) -> Applied:
        fields = {"workflow": "w", "hash": self.plan.hash, "at": self.clock.now(), "input": b"{}", **given}
        await self.journal.accept(ExecutionRecord(id=execution, **fields), kept)
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

    async def spread(self, count: int) -> list[Token]:
        """Accept the execution of a fan and start its items."""
        (split,) = (await self.accept()).emitted
        return list((await self.done(split, FanOut(count, Inline(b"[]")))).emitted)

    async def said(
        self, id: str, name: str = "go", path: Lineage | None = None, execution: str = "x"
    ) -> SignalReceived:
        """A signal that the journal has and the state has not heard of."""
        signal = SignalReceived(self.clock.now(), id, name, path, Inline(b"1"))
        await self.journal.record(execution, [signal])
        return signal

    async def signal(
        self, id: str, name: str = "go", path: Lineage | None = None, execution: str = "x"
    ) -> list[Token]:
        """Say something to the execution; answers who was resumed."""
        signal = await self.said(id, name, path, execution)
        return list((await self.state.signal(execution, signal)).emitted)

    async def control(self, number: int, *, paused: bool) -> list[Token]:
        """Pause or resume; answers what is sent because of it, at once or as due."""
        fact = PauseChanged(self.clock.now(), number, paused)
        await self.journal.record("x", [fact])
        emitted = (await self.state.control("x", fact)).emitted
        return [*emitted, *await self.due()]

    async def due(self) -> list[Token]:
        """What the timers send now."""
        return [token for each in await self.state.due_timers(100) for token in each.emitted]

    async def verdicts(self, tokens: Iterable[Token], *, leased: bool = False) -> list[str]:
        """What becomes of those who ask to run these."""
        return [(await self.state.claim("x", each, "me", leased=leased)).verdict for each in tokens]

    async def rest(self) -> None:
        """Give the state the time for what it writes on its own behind an act."""
        await self.journal.save_definition("rest", b"{}")

    def lose_state(self) -> None:
        """From here on there is a state that knows nothing, before the same journal."""
        self.state = self.anew()

    def node(self, name: str) -> int:
        return self.plan.index[name]


class StateSuite:
    """Opens journal and state in a folder with this clock; opened again there, the state is folded."""

    def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Plans
    ) -> AbstractAsyncContextManager[tuple[Journal, State]]:
        raise NotImplementedError

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Plans) -> State:
        """A state that knows nothing before a journal that is open: the one before it was lost."""
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the stores stay open."""
        raise NotImplementedError

    @asynccontextmanager
    async def world(
        self, folder: Path, plan: Plan, clock: VirtualClock | None = None
    ) -> AsyncIterator[World]:
        clock = clock or VirtualClock()
        plans = {plan.hash: plan}
        async with self.make_stores(folder, clock, plans) as (journal, state):
            yield World(journal, state, clock, plan, lambda: self.make_state(journal, clock, plans))
