"""Rebuild the state of an execution from its facts, in whatever order they are read.

Tokens are replayed as the rules emit them, the oldest fact first, so that a race without a recorded winner is decided
by the order of its arrivals in the journal. Items that have facts are started first; the windows are filled after
every fact was replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from rune.core.execution.control import change_pause, deliver_signal, end_execution, timers_of
from rune.core.execution.decision import Applied
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    ExecutionLate,
    ExecutionStarted,
    Fact,
    NodeResult,
    PauseChanged,
    RaceWinner,
    SignalReceived,
    TokenFact,
)
from rune.core.execution.state import State
from rune.core.execution.step import decision_for_fact, step_unrun
from rune.core.execution.token import Path, Token, TokenPurpose
from rune.core.execution.transition import Transition, apply, start_execution
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan

Key = tuple[int, Path]


def due_after_loss(state: State, applied: Applied) -> int | None:
    """Return when an execution has to be entered again whose state was lost, from what its fold yields: at its first
    timer if all of its tokens wait. None: at once, because something can run now, or to find its end."""
    if state.ended or applied.emitted or applied.finish is not None:
        return None
    return min((due for _, due in applied.armed), default=None)


class _Fold:
    def __init__(self, plan: Plan, facts: Iterable[Fact], limits: Limits) -> None:
        self._plan = plan
        self.state = State(limits=limits, folding=True)
        self._start = 0
        self._end: ExecutionEnded | None = None
        self._pauses: list[PauseChanged] = []
        self._signals: list[SignalReceived] = []
        self._consumed_signals: set[str] = set()
        self._facts: dict[Key, list[TokenFact]] = {}
        self._items: dict[Key, dict[int, int]] = {}  # by fan-out: item -> time of its earliest fact
        self._replaying: list[Key] = []  # fan-outs whose items are being replayed
        # Fan-outs that start no new items until all facts are replayed.
        self._held: list[tuple[Path, int]] = []
        self._heap: list[tuple[int, Path, int]] = []
        self._queued: dict[Key, Token] = {}
        self._skipped: list[Key] = []
        for fact in facts:
            self._add_fact(fact)

    def _add_fact(self, fact: Fact) -> None:
        if isinstance(fact, ExecutionStarted):
            self._start = fact.at
        elif isinstance(fact, ExecutionEnded):
            self._end = fact
        elif isinstance(fact, ExecutionLate):
            self.state.late = True
        elif isinstance(fact, PauseChanged):
            self._pauses.append(fact)
        elif isinstance(fact, SignalReceived):
            self._signals.append(fact)
        elif not isinstance(fact, EffectStarted):
            if isinstance(fact, NodeResult | AttemptFailed) and fact.signal is not None:
                self._consumed_signals.add(fact.signal)
            self._facts.setdefault((fact.node, fact.path), []).append(fact)

    def run(self, now: int) -> Applied:
        if self._end is not None:
            return end_execution(self.state, self._end)
        self._collect_items()
        self._queue_emitted(start_execution(self._plan, self.state, self._start))
        while self._replay() or self._release_fan_out(now):
            pass
        self.state.folding = False
        act = Transition(self._plan, self.state, now)
        act.propagate_counts(self.state.root)
        applied = act.applied
        self._deliver_signals()
        for fact in sorted(self._pauses, key=lambda pause: pause.number):
            self._apply_pause(fact)
        applied.emitted = [
            live.token
            for scope in self.state.scopes.values()
            for live in scope.live.values()
            if not live.waiting and not live.parked
        ]
        applied.armed = timers_of(self._plan, self.state)
        applied.finish = self.state.finish
        applied.skipped = self._skipped + applied.skipped
        return applied

    def _collect_items(self) -> None:
        """Collect the items that have facts: these were started, whatever the window allows now."""
        for (_, path), facts in self._facts.items():
            at = min(fact.at for fact in facts)
            for cut in range(0, len(path), 2):
                items = self._items.setdefault((path[cut], path[:cut]), {})
                item = path[cut + 1]
                items[item] = min(at, items.get(item, at))

    def _queue_emitted(self, applied: Applied) -> None:
        """Queue the emitted tokens that have facts, and those that end by the rules alone."""
        self._skipped += applied.skipped
        for token in applied.emitted:
            facts = self._facts.get(token.key)
            follows = token.fate is TokenPurpose.SKIP and self._plan.nodes[token.node].timeout is None
            if facts is None and not follows:
                continue
            at = min(fact.at for fact in facts) if facts else token.at
            heappush(self._heap, (at, token.path, token.node))
            self._queued[token.key] = token

    def _replay(self) -> bool:
        """Replay one token or item with facts, or one expired join. Return False if none is left."""
        if self._heap:
            _, path, node = heappop(self._heap)
            self._replay_token(self._queued.pop((node, path)))
            return True
        return self._start_known_item() or self._expire_join()

    def _replay_token(self, token: Token) -> None:
        facts = self._facts.pop(token.key, None)
        if facts is None:
            self._queue_emitted(apply(self._plan, self.state, step_unrun(self._plan, token, token.at)))
            return
        for fact in sorted(facts, key=_precedence):
            self._queue_emitted(apply(self._plan, self.state, decision_for_fact(self._plan, fact)))
        scope = self.state.scopes.get(token.path)
        if scope is not None and token.node in scope.fans and scope.fans[token.node].held:
            self._held.append((token.path, token.node))
            if token.key in self._items:
                self._replaying.append(token.key)

    def _start_known_item(self) -> bool:
        """Start one item with facts. It is replayed to its end before the next, which bounds the open scopes."""
        while self._replaying:
            split, path = self._replaying[-1]
            items = self._items[(split, path)]
            if not items:
                self._replaying.pop()
                continue
            item, at = items.popitem()
            scope = self.state.scopes[path]
            scope.fans[split].ahead.add(item)
            act = Transition(self._plan, self.state, at)
            act.start_item(scope, split, item)
            self._queue_emitted(act.applied)
            return True
        return False

    def _expire_join(self) -> bool:
        """Apply the result of one join that expired before it opened."""
        for key in sorted(self._facts, key=self._order):
            last = max(self._facts[key], key=_precedence)
            applied = apply(self._plan, self.state, decision_for_fact(self._plan, last))
            if applied.fresh:
                del self._facts[key]
                self._queue_emitted(applied)
                return True
        return False

    def _order(self, key: Key) -> tuple[int, Path, int]:
        """The oldest first: an aggregator that expired after a join in one of its items had collected that item."""
        node, path = key
        return min(fact.at for fact in self._facts[key]), path, node

    def _release_fan_out(self, now: int) -> bool:
        """Let one fan-out fill its window, after all facts were replayed."""
        if not self._held:
            return False
        path, split = self._held.pop()
        scope = self.state.scopes[path]
        scope.fans[split].held = False
        scope.count -= 1
        act = Transition(self._plan, self.state, now)
        act.start_items(scope, split)
        act.propagate_counts(scope)
        self._queue_emitted(act.applied)
        return True

    def _deliver_signals(self) -> None:
        """Deliver the signals that no fact names as consumed."""
        for fact in sorted(self._signals, key=lambda signal: (signal.at, signal.id)):
            if fact.id in self._consumed_signals:
                self.state.received_signals.add(fact.id)
            else:
                deliver_signal(self._plan, self.state, fact)

    def _apply_pause(self, fact: PauseChanged) -> None:
        change_pause(self._plan, self.state, fact)
        if fact.paused:
            for scope in self.state.scopes.values():
                for live in scope.live.values():
                    live.parked = not live.waiting


def _precedence(fact: TokenFact) -> tuple[int, int, int]:
    """Order the facts of a token: a race winner, then each attempt (suspended before failed), then the result."""
    if isinstance(fact, RaceWinner):
        return (0, 0, 0)
    if isinstance(fact, NodeResult):
        return (2, 0, 0)
    return (1, fact.attempt, isinstance(fact, AttemptFailed))


def fold(plan: Plan, facts: Iterable[Fact], now: int, limits: Limits = LIMITS) -> tuple[State, Applied]:
    """Return the state of an execution from its facts, with every token to send and every timer to arm."""
    rebuilding = _Fold(plan, facts, limits)
    applied = rebuilding.run(now)
    return rebuilding.state, applied
