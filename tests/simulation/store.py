"""Simulated state store with state, leases and timers; it may be wiped, rolled back or unavailable."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from rune.core.execution.control import (
    Verdict,
    change_pause,
    claim_verdict,
    deliver_signal,
    end_execution,
    fire_timer,
)
from rune.core.execution.decision import Applied, Decision, FinishExecution, Timer
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived, fact_key
from rune.core.execution.fold import due_after_loss, fold
from rune.core.execution.inline_run import predict_end
from rune.core.execution.state import LiveToken, State
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from rune.core.plan.model import Plan
from tests.simulation.journal import Journal, Outage, Outages, ViolationError

LEASE = 7_500
PATIENCE = 10_000
"""How long the caller of a command waits for its answer; afterwards the command must do nothing."""

MARKED = 60_000
"""How long an execution is marked that must not be installed from memory any more."""

Key = tuple[int, tuple[int, ...]]


@dataclass
class Lease:
    owner: int
    number: int
    until: int


@dataclass
class Memory:
    """The contents that a wipe removes."""

    state: State
    timers: dict[Timer, int] = field(default_factory=dict)
    leases: dict[Key, Lease] = field(default_factory=dict)
    claims: dict[Key, int] = field(default_factory=dict)
    held_back: dict[Key, Token] = field(default_factory=dict)  # waiting because max_parallel is reached
    lease_count: int = 0
    paused: bool = False  # by the pause facts applied to this memory


class Store:
    """State store that folds the journal when its state is missing or stale."""

    def __init__(self, plan: Plan, journal: Journal, outages: Outages) -> None:
        self.plan = plan
        self.journal = journal
        self.outages = outages
        self.memory: Memory | None = None
        self.snapshot: Memory | None = None
        self.server_run = 0
        self.folded_under = -1
        self.folds = 0
        self.applied_facts: set[Any] = set()
        self.emission_counts: dict[Key, int] = {}
        self.fire_counts: dict[tuple[Timer, int], int] = {}
        self.marked_until = 0
        self.closed = False
        self.entered: int | None = None  # when the execution is entered again after the state was lost

    def wipe(self) -> None:
        self.memory, self.server_run = None, self.server_run + 1
        self.marked_until, self.entered = 0, None

    def roll_back(self) -> None:
        if self.snapshot is not None:
            self.memory, self.server_run = copy.deepcopy(self.snapshot), self.server_run + 1
            self.marked_until, self.entered = 0, None

    @property
    def holds_state(self) -> bool:
        """Whether the server holds a state; that of an ended execution is dropped."""
        return self.current is not None and not self.current.state.ended

    def is_late(self, since: int, now: int) -> bool:
        """Whether a command that was begun at `since` must do nothing any more."""
        return now >= since + PATIENCE

    def enter(self, now: int) -> int:
        """When the execution is entered again: at once, unless all tokens of a lost state wait for a time."""
        if self.current is not None or self.journal.end is not None or not self.server_run:
            return now
        if self.entered is None:
            due = due_after_loss(*self.peek(now))
            self.entered = now if due is None else due
        return self.entered

    def peek(self, now: int) -> tuple[State, Applied]:
        """The state that the journal yields, which is not installed."""
        return fold(self.plan, list(self.journal.facts.values()), now)

    def save(self) -> None:
        if self.current is not None:
            self.snapshot = copy.deepcopy(self.memory)

    @property
    def current(self) -> Memory | None:
        """The memory, if it was folded in this run of the server."""
        return self.memory if self.folded_under == self.server_run else None

    def load(self, now: int) -> tuple[Memory, list[Token]]:
        """The memory, folded again if it is stale, and the tokens that the fold emits."""
        if self.outages.state:
            raise Outage
        if self.memory is not None and self.folded_under == self.server_run:
            return self.memory, []
        return self.refold(now)

    def refold(self, now: int) -> tuple[Memory, list[Token]]:
        state, applied = fold(self.plan, list(self.journal.facts.values()), now)
        self.memory = Memory(state, paused=self.journal.paused)
        self.folded_under = self.server_run
        if not state.ended:
            self.mark(now)
        self.folds += 1
        self.emission_counts.clear()
        self.fire_counts.clear()
        self.applied_facts = set(self.journal.facts)
        self._track(applied)
        return self.memory, applied.emitted

    def initialize(self, applied: Applied, state: State, now: int) -> bool:
        """Install the state of an accepted execution from memory, unless another process has activated or ended it."""
        if self.holds_state or now < self.marked_until:
            return False
        if self.closed:
            raise ViolationError("the state of an ended execution was installed")
        self.memory, self.folded_under = Memory(state), self.server_run
        self._track(applied)
        return True

    def mark(self, now: int) -> None:
        """Mark the execution: it must not be installed from memory any more."""
        self.marked_until = now + MARKED

    def _track(self, applied: Applied) -> None:
        memory = self.memory
        assert memory is not None
        for timer in applied.disarmed:
            memory.timers.pop(timer, None)
        for timer, due in applied.armed:
            memory.timers[timer] = due
        for token in applied.emitted:
            if token.attempt == 1 and not token.resumed and token.fate is not TokenPurpose.EXPIRE:
                self.emission_counts[token.key] = self.emission_counts.get(token.key, 0) + 1
            if memory.paused and token.fate is not TokenPurpose.EXPIRE:
                raise ViolationError(f"{token} was sent while the execution is paused")

    def claim(
        self, token: Token, owner: int, now: int, *, leases: bool
    ) -> tuple[Verdict | str, Token, Lease | None, bool]:
        """Verdict, the token as stored in the state, its lease if it needs one, and whether it was claimed before."""
        memory, _ = self.load(now)
        verdict = claim_verdict(self.plan, memory.state, token, now)
        if verdict == "unknown":
            memory, _ = self.refold(now)
            verdict = claim_verdict(self.plan, memory.state, token, now)
        if verdict not in ("run", "cancelled"):
            return verdict, token, None, False
        if memory.state.ended:
            raise ViolationError(f"{token} was claimed after the end of the execution")
        if memory.paused:
            raise ViolationError(f"{token} was claimed while the execution is paused")
        live = memory.state.scopes[token.path].live.get(token.node)
        stored = live.token if live else token
        reclaimed = memory.claims.get(token.key, 0) > 0
        if not reclaimed and self._is_full(memory, stored):
            memory.held_back[stored.key] = stored
            return "held back", stored, None, False
        if not leases and not reclaimed:
            memory.claims[token.key] = 1
            return verdict, stored, None, False
        held = memory.leases.get(token.key)
        if held is not None and held.until > now:
            return "held", token, None, True
        memory.lease_count += 1
        memory.claims[token.key] = memory.claims.get(token.key, 0) + 1
        lease = memory.leases[token.key] = Lease(owner, memory.lease_count, now + LEASE)
        return verdict, stored, lease, reclaimed

    def _is_full(self, memory: Memory, token: Token) -> bool:
        limit = self.plan.max_parallel
        return limit is not None and token.fate is TokenPurpose.RUN and len(memory.claims) >= limit

    def renew(self, token: Token, lease: Lease, now: int) -> bool:
        """Extend a lease; False if it is no longer held."""
        memory, _ = self.load(now)
        held = memory.leases.get(token.key)
        if held is not lease or held.until <= now:
            return False
        held.until = now + LEASE
        return True

    def predicted_end(self, decisions: list[Decision], now: int) -> FinishExecution | None:
        """The end that can be stored together with these decisions, if they complete the execution."""
        memory = self.current
        if self.outages.state or memory is None:
            return None
        return predict_end(memory.state, decisions)

    def apply(self, decisions: list[Decision], now: int, *, keep_claim: bool = False) -> Applied:
        memory, sent = self.load(now)
        total = Applied()
        for decision in decisions:
            applied = apply(self.plan, memory.state, decision)
            if not applied.known:
                memory, sent = self.refold(now)
                applied = apply(self.plan, memory.state, decision)
                assert applied.known, f"unknown after a fold: {decision}"
            self._track(applied)
            if decision.fact is not None:
                self.applied_facts.add(fact_key(decision.fact))
            total.emitted += applied.emitted
            total.finish = total.finish or applied.finish
            if applied.fresh and not keep_claim:  # a duplicate must not release the claim of the next step
                memory.leases.pop((decision.node, decision.path), None)
                memory.claims.pop((decision.node, decision.path), None)
        total.emitted = sent + total.emitted + self._release_held_back(memory, now)
        return total

    def _release_held_back(self, memory: Memory, now: int) -> list[Token]:
        """Release held-back tokens into free slots.

        Duplicates and tokens that ended meanwhile are dropped: they would occupy a slot for ever.
        """
        free = (self.plan.max_parallel or 0) - len(memory.claims)
        found: list[Token] = []
        for key, token in list(memory.held_back.items()):
            if len(found) >= free:
                break
            del memory.held_back[key]
            if claim_verdict(self.plan, memory.state, token, now) in ("run", "cancelled"):
                found.append(token)
        return found

    def fire(self, timer: Timer, now: int) -> Applied:
        """Fire a due timer. One without a token stays armed until its consequence is applied."""
        memory, _ = self.load(now)
        if memory.timers.get(timer, now + 1) > now:
            return Applied()
        if timer.kind in ("wait", "retry"):
            memory.timers.pop(timer, None)
        else:
            memory.timers[timer] = now + LEASE
        applied = fire_timer(self.plan, memory.state, timer, now)
        if timer.kind in ("wait", "retry"):
            for token in applied.emitted:
                key = (timer, token.attempt)
                self.fire_counts[key] = self.fire_counts.get(key, 0) + 1
                memory.claims.pop(token.key, None)
        elif not applied.emitted and applied.finish is None:
            memory.timers.pop(timer, None)
        self._track(applied)
        return applied

    def apply_pause(self, fact: PauseChanged, now: int) -> list[Token]:
        memory, sent = self.load(now)
        applied = change_pause(self.plan, memory.state, fact)
        if applied.fresh:
            memory.paused = fact.paused
        self.applied_facts.add(fact_key(fact))
        for timer, due in applied.armed:
            memory.timers[timer] = due
        return sent + applied.emitted

    def pause_status(self, now: int) -> tuple[int, bool]:
        """The number of the last pause or resume, and whether the execution is paused."""
        state = self.peek(now)[0] if self.current is None else self.load(now)[0].state
        return state.pause_state, state.paused_at is not None

    def apply_signal(self, fact: SignalReceived, now: int) -> list[Token]:
        _, sent = self.load(now)
        assert self.memory is not None
        waiting = {
            live.token.key: self._waiting_since(live)
            for name, live in self.signal_waits()
            if name == fact.name and fact.path in (None, live.token.path)
        }
        applied = deliver_signal(self.plan, self.memory.state, fact)
        self.applied_facts.add(fact_key(fact))
        self._track(applied)
        for token in applied.emitted:
            if waiting[token.key] != min(waiting.values()):
                raise ViolationError(f"{fact} did not resume the longest wait: {waiting}")
        return sent + applied.emitted

    def _waiting_since(self, live: LiveToken) -> int:
        row = self.journal.facts[("suspend", *live.token.key, live.token.attempt)]
        return row.at

    def signal_waits(self) -> list[tuple[str, LiveToken]]:
        """Waiting tokens with the names of their signals."""
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
        if self.outages.state:
            raise Outage
        if not self.holds_state and not self.closed:
            self.mark(now)
        self.closed = True
        memory, _ = self.load(now)
        end_execution(memory.state, fact)
        memory.timers.clear()
        memory.leases.clear()
