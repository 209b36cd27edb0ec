"""The state store of the simulated world: state, leases and timers; it may be lost, rolled back or away."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from rune.core.execution.control import Verdict, change_pause, claim_verdict, deliver_signal, end_execution
from rune.core.execution.decision import Applied, Decision, FinishExecution, Timer
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived, fact_key
from rune.core.execution.fold import fold
from rune.core.execution.inline_run import predict_end
from rune.core.execution.state import LiveToken, State
from rune.core.execution.timers import fire_timer
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from rune.core.plan.model import Plan
from tests.simulation.journal import Journal, Outage, Violation, Weather

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
    held_back: dict[Key, Token] = field(default_factory=dict)  # as many run as may run at once
    numbers: int = 0
    paused: bool = False  # by the controls that were told to this memory, whatever the state says


class Store:
    """Answers every verb after making sure that the state is there; finding none, it folds the journal."""

    def __init__(self, plan: Plan, journal: Journal, weather: Weather) -> None:
        self.plan = plan
        self.journal = journal
        self.weather = weather
        self.memory: Memory | None = None
        self.snapshot: Memory | None = None
        self.incarnation = 0
        self.folded_under = -1
        self.folds = 0
        self.applied_facts: set[Any] = set()
        self.openings: dict[Key, int] = {}
        self.fired: dict[tuple[Timer, int], int] = {}

    def wipe(self) -> None:
        self.memory, self.incarnation = None, self.incarnation + 1

    def roll_back(self) -> None:
        if self.snapshot is not None:
            self.memory, self.incarnation = copy.deepcopy(self.snapshot), self.incarnation + 1

    def save(self) -> None:
        if self.current is not None:
            self.snapshot = copy.deepcopy(self.memory)

    @property
    def current(self) -> Memory | None:
        """The memory, if it is of this incarnation."""
        return self.memory if self.folded_under == self.incarnation else None

    def ready(self, now: int) -> tuple[Memory, list[Token]]:
        """The memory, folded anew if it belongs to another incarnation; and what a fold has to send."""
        if self.weather.state:
            raise Outage
        if self.memory is not None and self.folded_under == self.incarnation:
            return self.memory, []
        return self.refold(now)

    def refold(self, now: int) -> tuple[Memory, list[Token]]:
        state, applied = fold(self.plan, list(self.journal.facts.values()), now)
        self.memory = Memory(state, paused=self.journal.paused)
        self.folded_under = self.incarnation
        self.folds += 1
        self.openings.clear()
        self.fired.clear()
        self.applied_facts = set(self.journal.facts)
        self._keep(applied)
        return self.memory, applied.emitted

    def begin(self, applied: Applied, state: State) -> None:
        self.memory, self.folded_under = Memory(state), self.incarnation
        self._keep(applied)

    def _keep(self, applied: Applied) -> None:
        memory = self.memory
        assert memory is not None
        for timer in applied.disarmed:
            memory.timers.pop(timer, None)
        for timer, due in applied.armed:
            memory.timers[timer] = due
        for token in applied.emitted:
            if token.attempt == 1 and not token.resumed and token.fate is not TokenPurpose.EXPIRE:
                self.openings[token.key] = self.openings.get(token.key, 0) + 1
            if memory.paused and token.fate is not TokenPurpose.EXPIRE:
                raise Violation(f"{token} was sent while the execution is paused")

    def claim(
        self, token: Token, owner: int, now: int, *, leases: bool
    ) -> tuple[Verdict | str, Token, Lease | None, bool]:
        """Verdict, the token as the state has it, a lease where one is due, whether it was claimed before."""
        memory, _ = self.ready(now)
        verdict = claim_verdict(self.plan, memory.state, token)
        if verdict == "unknown":
            memory, _ = self.refold(now)
            verdict = claim_verdict(self.plan, memory.state, token)
        if verdict not in ("run", "cancelled"):
            return verdict, token, None, False
        if memory.state.ended:
            raise Violation(f"{token} was let through after the terminal mark")
        if memory.paused:
            raise Violation(f"{token} was let through while the execution is paused")
        live = memory.state.scopes[token.path].live.get(token.node)
        mine = live.token if live else token
        again = memory.claims.get(token.key, 0) > 0
        if not again and self._is_full(memory, mine):
            memory.held_back[mine.key] = mine
            return "held back", mine, None, False
        if not leases and not again:
            memory.claims[token.key] = 1
            return verdict, mine, None, False
        held = memory.leases.get(token.key)
        if held is not None and held.until > now:
            return "held", token, None, True
        memory.numbers += 1
        memory.claims[token.key] = memory.claims.get(token.key, 0) + 1
        lease = memory.leases[token.key] = Lease(owner, memory.numbers, now + LEASE)
        return verdict, mine, lease, again

    def _is_full(self, memory: Memory, token: Token) -> bool:
        most = self.plan.max_parallel
        return most is not None and token.fate is TokenPurpose.RUN and len(memory.claims) >= most

    def renew(self, token: Token, lease: Lease, now: int) -> bool:
        """Whether the holder still has the lease; then it is longer."""
        memory, _ = self.ready(now)
        held = memory.leases.get(token.key)
        if held is not lease or held.until <= now:
            return False
        held.until = now + LEASE
        return True

    def certain_end(self, decisions: list[Decision], now: int) -> FinishExecution | None:
        """The end that can be written together with what leads to it."""
        memory = self.current
        if self.weather.state or memory is None:
            return None
        return predict_end(memory.state, decisions)

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
            if applied.fresh and not keeps:  # a twin has no say in who runs the next step of its token
                memory.leases.pop((decision.node, decision.path), None)
                memory.claims.pop((decision.node, decision.path), None)
        total.emitted = sent + total.emitted + self._let_in(memory)
        return total

    def _let_in(self, memory: Memory) -> list[Token]:
        """Somebody is done: whoever was held back may try again. One that came twice, or ended elsewhere, would take
        the place of another and never give it back."""
        free = (self.plan.max_parallel or 0) - len(memory.claims)
        found: list[Token] = []
        for key, token in list(memory.held_back.items()):
            if len(found) >= free:
                break
            del memory.held_back[key]
            if claim_verdict(self.plan, memory.state, token) in ("run", "cancelled"):
                found.append(token)
        return found

    def fire(self, timer: Timer, now: int) -> Applied:
        """Move a due timer on. What has no token of its own yet stays armed until what follows is applied."""
        memory, _ = self.ready(now)
        if memory.timers.get(timer, now + 1) > now:
            return Applied()
        if timer.kind in ("wait", "retry"):
            memory.timers.pop(timer, None)
        else:
            memory.timers[timer] = now + LEASE
        applied = fire_timer(self.plan, memory.state, timer, now)
        if timer.kind in ("wait", "retry"):
            for token in applied.emitted:
                fired = (timer, token.attempt)
                self.fired[fired] = self.fired.get(fired, 0) + 1
                memory.claims.pop(token.key, None)
        elif not applied.emitted and applied.finish is None:
            memory.timers.pop(timer, None)
        self._keep(applied)
        return applied

    def control(self, fact: PauseChanged, now: int) -> list[Token]:
        memory, sent = self.ready(now)
        applied = change_pause(self.plan, memory.state, fact)
        if applied.fresh:
            memory.paused = fact.paused
        self.applied_facts.add(fact_key(fact))
        for timer, due in applied.armed:
            memory.timers[timer] = due
        return sent + applied.emitted

    def controls(self, now: int) -> tuple[int, bool]:
        """How often the execution was paused or resumed, and whether it is paused."""
        state = self.ready(now)[0].state
        return state.pause_state, state.paused_at is not None

    def signal(self, fact: SignalReceived, now: int) -> list[Token]:
        _, sent = self.ready(now)
        assert self.memory is not None
        waiting = {
            live.token.key: self._waits_since(live)
            for name, live in self.listening()
            if name == fact.name and fact.path in (None, live.token.path)
        }
        applied = deliver_signal(self.plan, self.memory.state, fact)
        self.applied_facts.add(fact_key(fact))
        self._keep(applied)
        for token in applied.emitted:
            if waiting[token.key] != min(waiting.values()):
                raise Violation(f"{fact} passed over who waited longest: {waiting}")
        return sent + applied.emitted

    def _waits_since(self, live: LiveToken) -> int:
        row = self.journal.facts[("suspend", *live.token.key, live.token.attempt)]
        return row.at

    def listening(self) -> list[tuple[str, LiveToken]]:
        """Who waits for which signal."""
        memory = self.current
        if memory is None:
            return []
        return [
            (live.signal, live)
            for scope in memory.state.scopes.values()
            for live in scope.live.values()
            if live.waiting and live.signal is not None
        ]

    def close(self, fact: ExecutionEnded, now: int) -> None:
        memory, _ = self.ready(now)
        end_execution(memory.state, fact)
        memory.timers.clear()
        memory.leases.clear()
