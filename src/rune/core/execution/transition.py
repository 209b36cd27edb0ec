"""Apply a decision to the state of an execution, in one atomic transition.

Tokens, joins, windows and counts change only here. A duplicate of a decision changes nothing. A decision about a token
that the state does not know changes nothing either and is reported as unknown: the state is behind the journal and
must be folded.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rune.core.execution.decision import (
    DEAD,
    FAILED,
    LATENESS,
    Applied,
    ArriveAtJoin,
    CollectItem,
    Decision,
    Effect,
    EmitToken,
    FanOutItems,
    FinishExecution,
    SkipNode,
    Timer,
    UncollectedFailure,
)
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, RaceWinner, SignalReceived
from rune.core.execution.joins import Arrival, Barrier, join_verdict, opened_token
from rune.core.execution.outcome import Error
from rune.core.execution.retry import retry_due
from rune.core.execution.routing import activate_edges
from rune.core.execution.state import (
    FanOutState,
    LiveToken,
    Scope,
    State,
    in_cancelled_region,
    own_timer,
    started,
)
from rune.core.execution.step import decision_for_fact
from rune.core.execution.token import (
    ROOT,
    START,
    Path,
    Ref,
    Token,
    TokenPurpose,
    indices,
    parent,
    token_name,
    within,
)
from rune.core.plan.model import NodePlan, Plan

MAX_ITEMS_PER_TRANSITION = 128  # a dispatch token starts the rest, so the work per transition is bounded
MAX_SHOWN_FAILURES = 10
FINISH_DELAY_MS = 3_000  # the worker that caused the end writes it; the timer covers a crash of that worker


class Transition(msgspec.Struct, eq=False):
    """Performs effects on a state and collects the tokens and timers that follow."""

    _plan: Plan
    state: State
    _at: int
    applied: Applied = msgspec.field(default_factory=Applied)

    def perform(self, scope: Scope, effects: tuple[Effect, ...] | list[Effect]) -> None:
        """Perform the effects of a decision in its scope."""
        for effect in effects:
            if type(effect) is EmitToken:
                self.emit(scope, Token(effect.node, scope.path, effect.payload, effect.error))
            elif type(effect) is ArriveAtJoin:
                self._arrive(scope, effect)
            elif type(effect) is CollectItem:
                self._collect_item(scope, effect)
            elif type(effect) is SkipNode:
                scope.done.add(effect.node)
                self.applied.skipped.append((effect.node, scope.path))
            elif type(effect) is FanOutItems:
                self._fan_out(scope, effect)
            elif type(effect) is UncollectedFailure:
                self._count_failure(scope, effect)
            else:
                self.finish(effect)

    def emit(self, scope: Scope, token: Token) -> None:
        """Emit a token. While the execution is paused, the token is parked instead of sent."""
        paused = self.state.paused_at is not None
        scope.live[token.node] = LiveToken(token, parked=paused)
        scope.count += 1
        scope.active += 1
        if not paused:
            self.applied.emitted.append(token)

    def finish(self, finish: FinishExecution) -> None:
        """Record the first end and arm a timer that makes sure it is written."""
        if self.state.finish is None:
            if self.state.failed_items:
                finish = replace(finish, failed_items=self.state.failed_items)
            self.state.finish = finish
            self.applied.finish = finish
            self.applied.armed.append((Timer("finish"), self._at + FINISH_DELAY_MS))

    def _arrive(self, scope: Scope, effect: ArriveAtJoin) -> None:
        node = self._plan.nodes[self._plan.dst[effect.edge]]
        if node.index in scope.done:
            return
        barrier = scope.barriers.get(node.index)
        if barrier is None:
            barrier = scope.barriers[node.index] = Barrier()
        if effect.edge in barrier.arrivals:
            return
        barrier.arrivals[effect.edge] = Arrival(effect.alive, effect.payload, effect.error, self._at)
        if barrier.opened:
            return
        arrived = len(barrier.arrivals)
        fate = join_verdict(node.opens, len(node.in_edges), len(barrier.live()), arrived)
        if fate is None:
            self._wait_on(scope, node, arrived, len(node.in_edges), first=arrived == 1)
            return
        barrier.opened = True
        if node.timeout is not None:
            self.applied.disarmed.append(Timer("join", node.index, scope.path))
        self.emit(scope, opened_token(self._plan, node, barrier, scope.path, fate))

    def _wait_on(self, scope: Scope, node: NodePlan, arrived: int, expected: int, *, first: bool) -> None:
        self.applied.waiting.append((node.index, scope.path, arrived, expected))
        if first and node.timeout is not None and node.timeout_from != "scope":
            self.applied.armed.append((Timer("join", node.index, scope.path), self._at + node.timeout))

    def _collect_item(self, scope: Scope, effect: CollectItem) -> None:
        enclosing = self.state.scopes[parent(scope.path)]
        split, item = scope.path[-2:]
        fan = enclosing.fans[split]
        node = self._plan.nodes[self._plan.nodes[split].aggregator]
        edges = len(node.in_edges)
        place = item * edges + self._plan.gather_position[effect.edge]
        if node.index in enclosing.done or fan.marks[place]:
            return
        fan.marks[place] = effect.mark
        if effect.mark == FAILED:
            self._count_failed_item(scope)
        fan.resolved += 1
        fan.first = min(fan.first or self._at, self._at)
        fan.latest, fan.last = max((fan.latest, fan.last), (self._at, place))
        if fan.resolved == len(fan.marks):
            self._open_aggregator(enclosing, node, fan)
        else:
            self._wait_on(enclosing, node, fan.resolved // edges, fan.count, first=fan.resolved == 1)

    def _open_aggregator(self, scope: Scope, node: NodePlan, fan: FanOutState) -> None:
        if node.timeout is not None:
            self.applied.disarmed.append(Timer("join", node.index, scope.path))
        last = fan.last % len(node.in_edges) if fan.last >= 0 else -1
        self.emit(scope, Token(node.index, scope.path, fan.payload, fan.error, items=fan.count, last=last))

    def _count_failed_item(self, scope: Scope) -> None:
        """Count the item of a scope as failed, once however many of its paths fail."""
        if not scope.failed:
            scope.failed = True
            self.state.failed_items += 1

    def _count_failure(self, scope: Scope, effect: UncollectedFailure) -> None:
        state = self.state
        self._count_failed_item(scope)
        state.failures += 1
        state.first_failures.append((scope.path, effect.node, effect.failure))
        state.first_failures.sort(key=lambda failure: failure[:2])
        del state.first_failures[MAX_SHOWN_FAILURES:]

    def _fan_out(self, scope: Scope, effect: FanOutItems) -> None:
        node = self._plan.nodes[effect.node]
        edges = len(self._plan.nodes[node.aggregator].in_edges) if node.aggregator >= 0 else 0
        fan = FanOutState(effect.count, effect.payload, effect.error, bytearray(effect.count * edges))
        scope.fans[effect.node] = fan
        if effect.count == 0:
            if node.aggregator >= 0:
                self._open_aggregator(scope, self._plan.nodes[node.aggregator], fan)
            return
        if self.state.folding:
            fan.held = True  # until the fold has replayed every item that has facts
            scope.count += 1
        self.start_items(scope, effect.node)

    def start_items(self, scope: Scope, split: int) -> None:
        """Start as many items as the window allows, at most `MAX_ITEMS_PER_TRANSITION`."""
        fan = scope.fans[split]
        if fan.held:
            return
        node = self._plan.nodes[split]
        _advance_cursor(fan)
        more = not fan.closed and fan.next < fan.count
        if more and in_cancelled_region(self._plan, self.state, split, scope.path):
            self._abandon(scope, node, fan)
        remaining = MAX_ITEMS_PER_TRANSITION
        while remaining and self._has_room(node, fan):
            fan.next += 1
            self.start_item(scope, split, fan.next - 1)
            _advance_cursor(fan)
            remaining -= 1
        if not remaining and split not in scope.live and self._has_room(node, fan):
            self.emit(scope, Token(split, scope.path, fate=TokenPurpose.DISPATCH))

    def _has_room(self, node: NodePlan, fan: FanOutState) -> bool:
        if fan.closed or fan.next >= fan.count:
            return False
        if node.window.size is not None:
            open_slots = node.window.size - fan.in_flight
        else:
            open_slots = self.state.limits.window - fan.active
        if self.state.active_items >= self.state.limits.items_in_flight:
            return fan.active == 0 and open_slots > 0
        return open_slots > 0

    def start_item(self, scope: Scope, split: int, item: int) -> None:
        """Open the scope of one item and emit its first tokens."""
        node = self._plan.nodes[split]
        fan = scope.fans[split]
        inner = Scope((*scope.path, split, item), self._at)
        self.state.scopes[inner.path] = inner
        scope.count += 1
        fan.in_flight += 1
        self.perform(
            inner, activate_edges(self._plan, node.success, Ref("item", split, inner.path), fan.error)
        )
        self.arm_races(inner, node.races)
        self.propagate_counts(inner, refill=False)

    def _abandon(self, scope: Scope, node: NodePlan, fan: FanOutState) -> None:
        """Close the fan-out of a cancelled region. Items that never started count as dead at the aggregator."""
        fan.closed = True
        if node.aggregator < 0 or node.aggregator in scope.done:
            return
        edges = len(self._plan.nodes[node.aggregator].in_edges)
        for item in range(fan.next, fan.count):
            if item not in fan.ahead:
                fan.marks[item * edges : (item + 1) * edges] = bytes([DEAD]) * edges
                fan.resolved += edges
        if fan.resolved == len(fan.marks):
            self._open_aggregator(scope, self._plan.nodes[node.aggregator], fan)

    def cancel_region(self, scope: Scope, node: NodePlan) -> None:
        """Cancel the nodes that lead only to a decided race. Waiting tokens are resumed, so that they end now."""
        self.state.cancelled.add((node.index, scope.path))
        inside = [inner for inner in self.state.scopes.values() if within(inner.path, scope.path)]
        for inner in sorted(inside, key=lambda inner: -len(inner.path)):
            for split in inner.fans:
                self.start_items(inner, split)
            for live in inner.live.values():
                if live.waiting and live.token.node in node.region:
                    self.wake(inner, live)
            if inner is not scope:
                self.propagate_counts(inner, refill=False)

    def wait_until(self, scope: Scope, live: LiveToken, due: int | None) -> None:
        """Suspend a token until a time, or without a timer if `due` is None."""
        if not live.waiting:
            scope.active -= 1
        live.waiting, live.parked, live.due = True, False, due
        if due is not None:
            self.applied.armed.append((own_timer(live), due))

    def wait_for_signal(self, scope: Scope, live: LiveToken, name: str, deadline: int | None) -> None:
        """Let a suspended token wait for a signal. The oldest signal that was stored before is consumed at once."""
        live.signal, live.deadline = name, deadline
        waiting = self.state.waiting_for_signal.setdefault(name, {})
        waiting[(scope.path, live.token.node)] = self._at
        if deadline is not None and (live.due is None or deadline < live.due):
            self.applied.armed.append((own_timer(live), deadline))
        for signal in self.state.pending_signals:
            if signal.name == name and signal.path in (None, scope.path):
                self.state.pending_signals.remove(signal)
                self.give_signal(scope, live, signal)
                return

    def stop_waiting_for_signal(self, live: LiveToken) -> None:
        """Remove a token from those that wait for its signal."""
        if live.signal is None:
            return
        waiting = self.state.waiting_for_signal[live.signal]
        waiting.pop((live.token.path, live.token.node), None)
        if not waiting:
            del self.state.waiting_for_signal[live.signal]

    def give_signal(self, scope: Scope, live: LiveToken, signal: SignalReceived) -> None:
        """Resume a waiting token with a signal."""
        self.disarm(live)
        live.token = replace(live.token, signal=signal.id)
        live.received_signal = replace(signal, value=None)
        self.wake(scope, live)

    def route_signal(self, signal: SignalReceived) -> None:
        """Resume the token that has waited longest for a signal; store the signal if no token waits for it."""
        waiting = [
            (since, path, node)
            for (path, node), since in self.state.waiting_for_signal.get(signal.name, {}).items()
            if signal.path is None or path == signal.path
        ]
        if not waiting:
            insort(
                self.state.pending_signals,
                replace(signal, value=None),
                key=lambda pending: (pending.at, pending.id),
            )
            return
        _, path, node = min(waiting)
        scope = self.state.scopes[path]
        self.give_signal(scope, scope.live[node], signal)
        self.propagate_counts(scope)

    def disarm(self, live: LiveToken) -> None:
        """Disarm the timer of a waiting token, including one that was armed in this transition."""
        timer = own_timer(live)
        self.applied.armed = [entry for entry in self.applied.armed if entry[0] != timer]
        self.applied.disarmed.append(timer)

    def wake(self, scope: Scope, live: LiveToken) -> None:
        """Resume a waiting token, or park it while the execution is paused."""
        self.stop_waiting_for_signal(live)
        live.waiting, live.due, live.signal, live.deadline = False, None, None, None
        live.parked = self.state.paused_at is not None
        scope.active += 1
        if not live.parked:
            self.applied.emitted.append(live.token)

    def arm_races(self, scope: Scope, joins: tuple[int, ...]) -> None:
        """Arm the timeouts of races, which begin when their scope opens."""
        for join in joins:
            timeout = self._plan.nodes[join].timeout or 0
            self.applied.armed.append((Timer("join", join, scope.path), self._at + timeout))

    def propagate_counts(self, scope: Scope, *, refill: bool = True) -> None:
        """Propagate the counts of a scope outward: end items, refill windows, end the execution."""
        while True:
            is_active = scope.active > 0
            if not scope.path:
                if scope.count == 0 and not self.state.folding:
                    self.finish(self._final_status())
                return
            enclosing = self.state.scopes[parent(scope.path)]
            fan = enclosing.fans[scope.path[-2]]
            if is_active != scope.running:
                change = 1 if is_active else -1
                scope.running = is_active
                fan.active += change
                enclosing.active += change
                self.state.active_items += change
            if scope.count == 0:
                del self.state.scopes[scope.path]
                fan.in_flight -= 1
                enclosing.count -= 1
            if refill and fan.next < fan.count:
                self.start_items(enclosing, scope.path[-2])
            if not refill:
                return
            scope = enclosing

    def _final_status(self) -> FinishExecution:
        state = self.state
        if state.failures == 0:
            return FinishExecution("completed")
        return end_by_failures(self._plan, state.failures, state.first_failures)


def end_by_failures(plan: Plan, count: int, first: Sequence[tuple[Path, int, Error]]) -> FinishExecution:
    """Return the end of an execution in which items failed that no aggregator collects."""
    failures = [
        {"node": plan.ids[node], "index": list(indices(path)), "code": error.code, "message": error.message}
        for path, node, error in first
    ]
    message = f"{count} failed without a list that shows them"
    origin = first[0][2].origin if first else None
    details = {"count": count, "first": failures}
    return FinishExecution("failed", Error("ITEMS_FAILED", message, details, engine=True, origin=origin))


def _advance_cursor(fan: FanOutState) -> None:
    """Advance the cursor past items that were started ahead of it."""
    while fan.next in fan.ahead:
        fan.ahead.remove(fan.next)
        fan.next += 1


def start_execution(plan: Plan, state: State, at: int) -> Applied:
    """Start an execution: triggers are done at once, every other entry receives a token."""
    act = Transition(plan, state, at)
    state.started_at = at
    root = state.scopes[ROOT] = Scope(ROOT, at)
    for entry in plan.entries:
        if entry in plan.triggers:
            root.done.add(entry)
            act.perform(
                root, decision_for_fact(plan, NodeResult(entry, ROOT, at, "ok", payload=START)).effects
            )
        else:
            act.emit(root, Token(entry))
    act.arm_races(root, plan.races)
    if plan.timeout is not None:
        act.applied.armed.append((Timer("deadline"), at + plan.timeout))
    if plan.expect_within is not None:
        act.applied.armed.append((LATENESS, at + plan.expect_within))
    act.propagate_counts(root)
    return act.applied


def apply(plan: Plan, state: State, decision: Decision) -> Applied:
    """Apply a decision to the state."""
    act = Transition(plan, state, decision.at)
    scope = state.scopes.get(decision.path)
    if scope is None:
        return _unchanged(act, known=state.ended or started(state, decision.path))
    live = scope.live.get(decision.node)
    fact = decision.fact
    if decision.node in scope.done and (live is None or fact is not None):
        return _unchanged(act)
    delivered = None if live is None else live.received_signal
    consumed = fact.signal if type(fact) is NodeResult or type(fact) is AttemptFailed else None
    duplicate = type(fact) is AttemptFailed and live is not None and live.token.attempt > fact.attempt
    # This state still stores the signal, or delivered it to another token.
    if (
        consumed is not None
        and not state.folding
        and not duplicate
        and (delivered is None or delivered.id != consumed)
    ):
        return _unchanged(act, known=False)
    if fact is None or type(fact) is NodeResult:
        changed = _complete(plan, act, scope, live, decision, fact)
    elif live is None:
        return _unchanged(act, known=False)
    elif type(fact) is AttemptFailed:
        changed = _retry(plan, act, scope, live, fact)
    elif type(fact) is NodeSuspended:
        changed = _suspend(plan, act, scope, live, fact)
    else:
        changed = _record_race_winner(plan, state, act, scope, live, fact)
    if not changed:
        return _unchanged(act, known=live is not None)
    act.propagate_counts(scope)
    # The token ended without consuming its signal, which resumes the next waiting token.
    if (
        delivered is not None
        and consumed is None
        and type(fact) is not NodeSuspended
        and type(fact) is not RaceWinner
    ):
        act.route_signal(delivered)
    return act.applied


def _unchanged(act: Transition, *, known: bool = True) -> Applied:
    act.applied.fresh = False
    act.applied.known = known
    return act.applied


def _complete(
    plan: Plan,
    act: Transition,
    scope: Scope,
    live: LiveToken | None,
    decision: Decision,
    fact: NodeResult | None,
) -> bool:
    node = plan.nodes[decision.node]
    if live is None:
        # Only a join can expire before it has a token; any other node is unknown to this state.
        if not _is_cancelled_by_rule(node, scope, fact) and not _is_recorded(act.state, node, scope, fact):
            return False
        act.applied.disarmed.append(Timer("join", node.index, scope.path))
    else:
        _remove(act, scope, live)
    if live is not None and live.token.fate is TokenPurpose.DISPATCH:
        act.start_items(scope, decision.node)
        return True
    scope.done.add(decision.node)
    scope.barriers.pop(decision.node, None)
    if fact is None or fact.status == "skipped":
        act.applied.skipped.append((decision.node, decision.path))
    if node.joins_items:
        _release(scope, node, given_up=fact is None or fact.status != "ok")
    if node.region and fact is not None and fact.status == "ok":
        act.cancel_region(scope, node)
    act.perform(scope, decision.effects)
    return True


def _remove(act: Transition, scope: Scope, live: LiveToken) -> None:
    del scope.live[live.token.node]
    scope.count -= 1
    if live.waiting:
        _stop_waiting(act, live)
    else:
        scope.active -= 1


def _stop_waiting(act: Transition, live: LiveToken) -> None:
    """Disarm a token that this state still considers waiting although a fact ended the wait."""
    act.applied.disarmed.append(own_timer(live))
    act.stop_waiting_for_signal(live)
    live.signal, live.deadline = None, None


def _is_cancelled_by_rule(node: NodePlan, scope: Scope, fact: NodeResult | None) -> bool:
    if fact is None or fact.status != "failed" or node.timeout is None:
        return False
    return node.index in scope.barriers or node.split_of in scope.fans or node.timeout_from == "scope"


def _is_recorded(state: State, node: NodePlan, scope: Scope, fact: NodeResult | None) -> bool:
    """Return whether a fold accepts the recorded result of an aggregator although some of its items are unfinished."""
    return state.folding and node.joins_items and node.split_of in scope.fans and fact is not None


def _release(scope: Scope, node: NodePlan, *, given_up: bool) -> None:
    """Drop the marks of a finished aggregator. If it expired, no further items start."""
    fan = scope.fans[node.split_of]
    fan.closed = fan.closed or given_up
    fan.marks = bytearray()


def _retry(plan: Plan, act: Transition, scope: Scope, live: LiveToken, fact: AttemptFailed) -> bool:
    if live.token.attempt != fact.attempt:
        return False
    if live.waiting:
        _stop_waiting(act, live)
    live.token = replace(
        live.token, attempt=fact.attempt + 1, resumed=False, signal=None, fate=TokenPurpose.RUN
    )
    live.received_signal = None
    retry_at = fact.failure.details.get("retry_at")
    earliest = retry_at if type(retry_at) is int else 0
    name = token_name(fact.node, fact.path, plan.ids)
    due = retry_due(plan.nodes[fact.node].retry, fact.attempt, fact.at, name, earliest)
    act.wait_until(scope, live, due)
    _end_if_nothing_remains(plan, act, scope, live)
    return True


def _end_if_nothing_remains(plan: Plan, act: Transition, scope: Scope, live: LiveToken) -> None:
    """Resume a suspended token whose race was decided while its node ran, so that it ends."""
    if live.waiting and in_cancelled_region(plan, act.state, live.token.node, scope.path):
        act.disarm(live)
        act.wake(scope, live)


def _suspend(plan: Plan, act: Transition, scope: Scope, live: LiveToken, fact: NodeSuspended) -> bool:
    if live.token.attempt != fact.attempt or live.token.resumed:
        return False
    live.token = replace(live.token, resumed=True)
    act.wait_until(scope, live, fact.due)
    if fact.signal is not None:
        act.wait_for_signal(scope, live, fact.signal, fact.deadline)
    _end_if_nothing_remains(plan, act, scope, live)
    return True


def _record_race_winner(
    plan: Plan, state: State, act: Transition, scope: Scope, live: LiveToken, fact: RaceWinner
) -> bool:
    chosen = replace(live.token, arrived=fact.arrived, payload=fact.payload, error=fact.error)
    node = plan.nodes[fact.node]
    cancels = bool(node.region) and (node.index, scope.path) not in state.cancelled
    if chosen == live.token and not cancels:
        return False
    live.token = chosen
    if cancels:
        act.cancel_region(scope, node)
    return True
