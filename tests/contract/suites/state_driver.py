"""Driver for state contract tests: a few plans, and one execution with its state and journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from rune.core.execution.decision import Decision
from rune.core.execution.fact import Fact, PauseChanged, SignalReceived
from rune.core.execution.outcome import FanOut, Output
from rune.core.execution.step import step
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Path as Lineage
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, Journal
from rune.ports.state import Applied, State
from rune.testing.harness import VirtualClock, compiled

Nodes = Mapping[str, Any]
Plans = Mapping[str, Plan]


def _document(*nodes: Nodes) -> dict[str, Any]:
    listed = [{"id": "in", "type": "input"}, *nodes]
    edges = [{"src": a["id"], "dst": b["id"]} for a, b in pairwise(listed)]
    return {"id": "chain", "nodes": listed, "edges": edges}


@cache
def chain() -> Plan:
    """in → a → b → c, where b is effectful."""
    effect = {"id": "b", "type": "noop", "parameters": {"effectful": True}}
    return compiled(_document({"id": "a", "type": "noop"}, effect, {"id": "c", "type": "noop"}))


@cache
def joined() -> Plan:
    """in → {a, b} → c, whose join times out after a minute."""
    nodes = [
        {"id": "in", "type": "input"},
        {"id": "a", "type": "noop"},
        {"id": "b", "type": "noop"},
        {"id": "c", "type": "merge", "parameters": {"timeout": 60}},
    ]
    pairs = (("in", "a"), ("in", "b"), ("a", "c"), ("b", "c"))
    return compiled({"id": "joined", "nodes": nodes, "edges": [{"src": a, "dst": b} for a, b in pairs]})


@cache
def fan(max_parallel: int | None = None) -> Plan:
    """in → s (split) → w → g (aggregator)."""
    split = {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}}
    document = _document(split, {"id": "w", "type": "noop"}, {"id": "g", "type": "aggregator"})
    return compiled({**document, "settings": {"max_parallel": max_parallel} if max_parallel else {}})


@cache
def limited() -> Plan:
    """in → {a, b, c, d, e}, with `max_parallel` 2."""
    nodes = [{"id": "in", "type": "input"}, *({"id": each, "type": "noop"} for each in "abcde")]
    edges = [{"src": "in", "dst": each} for each in "abcde"]
    return compiled({"id": "limited", "nodes": nodes, "edges": edges, "settings": {"max_parallel": 2}})


@cache
def timed() -> Plan:
    """in → a → b, with a timeout of one minute."""
    document = _document({"id": "a", "type": "noop"}, {"id": "b", "type": "noop"})
    return compiled({**document, "settings": {"timeout": 60}})


class StateDriver(msgspec.Struct):
    """Drives one execution through a state and its journal."""

    journal: Journal
    state: State
    clock: VirtualClock
    plan: Plan
    make_state: Callable[[], State]

    async def accept(self, execution: str = "x", facts: Sequence[Fact] = (), **given: Any) -> Applied:
        fields = {
            "workflow": "w",
            "hash": self.plan.hash,
            "at": self.clock.now(),
            "input": Inline(b"{}"),
            **given,
        }
        await self.journal.accept(ExecutionRecord(id=execution, **fields), facts)
        return await self.state.begin(execution)

    def decision(self, token: Token, outcome: Any = None) -> Decision:
        return step(self.plan, token, outcome or Output(Inline(b"1")), self.clock.now())

    async def record_decision(self, decision: Decision, execution: str = "x") -> Decision:
        assert decision.fact is not None
        await self.journal.record(execution, [decision.fact])
        return decision

    async def complete(self, token: Token, outcome: Any = None, execution: str = "x") -> Applied:
        decision = await self.record_decision(self.decision(token, outcome), execution)
        return await self.state.apply(execution, [decision])

    async def advance_to_b(self) -> Token:
        """Accept an execution of `chain` and complete its first node; return the token of the second."""
        (a,) = (await self.accept()).emitted
        (b,) = (await self.complete(a)).emitted
        return b

    async def start_items(self, count: int) -> list[Token]:
        """Accept an execution of `fan` and start its items."""
        (split,) = (await self.accept()).emitted
        return list((await self.complete(split, FanOut(count, Inline(b"[]")))).emitted)

    async def record_signal(
        self, id: str, name: str = "go", path: Lineage | None = None, execution: str = "x"
    ) -> SignalReceived:
        """Record a signal in the journal without passing it to the state."""
        signal = SignalReceived(self.clock.now(), id, name, path, Inline(b"1"))
        await self.journal.record(execution, [signal])
        return signal

    async def signal(
        self, id: str, name: str = "go", path: Lineage | None = None, execution: str = "x"
    ) -> list[Token]:
        """Send a signal to the execution; return the resumed tokens."""
        signal = await self.record_signal(id, name, path, execution)
        return list((await self.state.signal(execution, signal)).emitted)

    async def set_paused(self, number: int, *, paused: bool) -> list[Token]:
        """Pause or resume; return the tokens emitted at once or by due timers."""
        fact = PauseChanged(self.clock.now(), number, paused)
        await self.journal.record("x", [fact])
        emitted = (await self.state.control("x", fact)).emitted
        return [*emitted, *await self.fire_timers()]

    async def fire_timers(self) -> list[Token]:
        """Return the tokens emitted by due timers."""
        return [token for each in await self.state.due_timers(100) for token in each.emitted]

    async def claim_all(self, tokens: Iterable[Token], *, leased: bool = False) -> list[str]:
        """Claim each token; return the verdicts."""
        return [(await self.state.claim("x", each, "me", leased=leased)).verdict for each in tokens]

    async def confirm(self, tokens: Sequence[Token]) -> None:
        """Report that the queue has confirmed tokens, to a state that needs to know."""
        confirmations = getattr(self.state, "confirmations", None)
        if confirmations is not None:
            confirmations.add("x", tokens)
            await confirmations.report()

    async def settle(self) -> None:
        """Wait until the writes that the state does in the background are committed."""
        await self.journal.save_definition("settle", b"{}")

    def lose_state(self) -> None:
        """Replace the state by an empty one over the same journal."""
        self.state = self.make_state()

    def node(self, name: str) -> int:
        return self.plan.index[name]


class StateContractBase:
    """Opens journal and state in a folder; opened again there, the state is rebuilt from the journal."""

    def make_stores(
        self, folder: Path, clock: VirtualClock, plans: Plans
    ) -> AbstractAsyncContextManager[tuple[Journal, State]]:
        raise NotImplementedError

    def make_state(self, journal: Journal, clock: VirtualClock, plans: Plans) -> State:
        """Return an empty state over an open journal."""
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the stores stay open."""
        raise NotImplementedError

    @asynccontextmanager
    async def driver(
        self, folder: Path, plan: Plan, clock: VirtualClock | None = None
    ) -> AsyncIterator[StateDriver]:
        clock = clock or VirtualClock()
        plans = {plan.hash: plan}
        async with self.make_stores(folder, clock, plans) as (journal, state):
            yield StateDriver(journal, state, clock, plan, lambda: self.make_state(journal, clock, plans))
