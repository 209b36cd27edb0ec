"""The state store of the simulated world: state, leases and timers; it may be lost, rolled back or away."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from rune.core.apply import apply
from rune.core.control import Verdict, control, end, touch
from rune.core.effect import Applied, Decision, Timer
from rune.core.fact import Control, End, fact_key
from rune.core.fold import fold
from rune.core.plan import Plan
from rune.core.state import State
from rune.core.token import Token
from rune.core.wake import wake
from tests.sim.journal import Journal, Outage, Violation

LEASE = 9_000
Key = tuple[int, tuple[int, ...]]


@dataclass
class Lease:
    owner: int
    number: int
    until: int


@dataclass
class Memory:
    """What is gone when the store is wiped."""

    state: State
    timers: dict[Timer, int] = field(default_factory=dict)
    leases: dict[Key, Lease] = field(default_factory=dict)
    claims: dict[Key, int] = field(default_factory=dict)
    numbers: int = 0


class Store:
    """Answers every verb after making sure that the state is there; finding none, it folds the journal."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.plan = plan
        self.journal = journal
        self.memory: Memory | None = None
        self.snapshot: Memory | None = None
        self.incarnation = 0
        self.folded_under = -1
        self.away = False
        self.applied_facts: set[Any] = set()
        self.openings: dict[Key, int] = {}
        self.fired: dict[Timer, int] = {}
        self.keep_timers = True

    def wipe(self) -> None:
        self.memory, self.incarnation = None, self.incarnation + 1

    def roll_back(self) -> None:
        if self.snapshot is not None:
            self.memory, self.incarnation = copy.deepcopy(self.snapshot), self.incarnation + 1

    def save(self) -> None:
        if self.memory is not None and self.folded_under == self.incarnation:
            self.snapshot = copy.deepcopy(self.memory)

    def ready(self, now: int) -> tuple[Memory, list[Token]]:
        """The memory, folded anew if it belongs to another incarnation; and what a fold has to send."""
        if self.away:
            raise Outage
        if self.memory is not None and self.folded_under == self.incarnation:
            return self.memory, []
        return self.refold(now)

    def refold(self, now: int) -> tuple[Memory, list[Token]]:
        state, applied = fold(self.plan, list(self.journal.facts.values()), now)
        self.memory = Memory(state)
        self.folded_under = self.incarnation
        self.openings.clear()
        self.fired.clear()
        self.applied_facts = set(self.journal.facts)
        self._keep(applied)
        return self.memory, applied.emitted

    def begin(self, applied: Applied, state: State) -> None:
        self.memory, self.folded_under = Memory(state), self.incarnation
        self._keep(applied)

    def _keep(self, applied: Applied) -> None:
        assert self.memory is not None
        for timer in applied.disarmed:
            self.memory.timers.pop(timer, None)
        if self.keep_timers:
            for timer, due in applied.armed:
                self.memory.timers[timer] = due
        for token in applied.emitted:
            if token.attempt == 1 and not token.resumed:
                self.openings[token.key] = self.openings.get(token.key, 0) + 1

    def claim(
        self, token: Token, owner: int, now: int, *, leases: bool
    ) -> tuple[Verdict | str, Token, Lease | None, bool]:
        """Verdict, the token as the state has it, a lease where one is due, whether it was claimed before."""
        memory, _ = self.ready(now)
        verdict = touch(self.plan, memory.state, token)
        if verdict == "unknown":
            memory, _ = self.refold(now)
            verdict = touch(self.plan, memory.state, token)
        if verdict not in ("run", "cancelled"):
            return verdict, token, None, False
        if memory.state.ended:
            raise Violation(f"{token} was let through after the terminal mark")
        if self.journal.paused:
            raise Violation(f"{token} was let through while the execution is paused")
        scope = memory.state.scopes[token.path]
        live = scope.live.get(token.node)
        again = memory.claims.get(token.key, 0) > 0
        if not leases and not again:
            memory.claims[token.key] = 1
            return verdict, live.token if live else token, None, False
        held = memory.leases.get(token.key)
        if held is not None and held.until > now:
            return "held", token, None, True
        memory.numbers += 1
        memory.claims[token.key] = memory.claims.get(token.key, 0) + 1
        lease = memory.leases[token.key] = Lease(owner, memory.numbers, now + LEASE)
        return verdict, live.token if live else token, lease, again

    def renew(self, token: Token, lease: Lease, now: int) -> bool:
        """Whether the holder still has the lease; then it is longer."""
        memory, _ = self.ready(now)
        held = memory.leases.get(token.key)
        if held is not lease or held.until <= now:
            return False
        held.until = now + LEASE
        return True

    def apply(self, decisions: list[Decision], now: int, *, keeps: bool = False) -> Applied:
        memory, sent = self.ready(now)
        total = Applied()
        for decision in decisions:
            applied = apply(self.plan, memory.state, decision)
            if not applied.known:
                memory, sent = self.refold(now)
                applied = apply(self.plan, memory.state, decision)
                assert applied.known, f"unknown after a fold: {decision}"
            self._keep(applied)
            if decision.fact is not None:
                self.applied_facts.add(fact_key(decision.fact))
            total.emitted += applied.emitted
            total.finish = total.finish or applied.finish
            if not keeps:
                memory.leases.pop((decision.node, decision.path), None)
                memory.claims.pop((decision.node, decision.path), None)
        total.emitted = sent + total.emitted
        return total

    def fire(self, timer: Timer, now: int) -> Applied:
        """Move a due timer on. What has no token of its own yet stays armed until what follows is applied."""
        memory, _ = self.ready(now)
        if timer.kind in ("wait", "retry"):
            memory.timers.pop(timer, None)
        else:
            memory.timers[timer] = now + LEASE
        applied = wake(self.plan, memory.state, timer, now)
        if timer.kind in ("wait", "retry"):
            for token in applied.emitted:
                self.fired[timer] = self.fired.get(timer, 0) + 1
                memory.claims.pop(token.key, None)
        elif not applied.emitted and applied.finish is None:
            memory.timers.pop(timer, None)
        for armed, due in applied.armed:
            memory.timers[armed] = due
        return applied

    def control(self, fact: Control, now: int) -> list[Token]:
        memory, sent = self.ready(now)
        applied = control(self.plan, memory.state, fact)
        self.applied_facts.add(fact_key(fact))
        for timer, due in applied.armed:
            memory.timers[timer] = due
        return sent + applied.emitted

    def close(self, fact: End, now: int) -> None:
        memory, _ = self.ready(now)
        end(memory.state, fact)
        memory.timers.clear()
        memory.leases.clear()
