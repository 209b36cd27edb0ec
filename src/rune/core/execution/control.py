"""Pause, resume, signal and end an execution, fire its timers, and decide whether a claimed token may run.

A timer that no longer matches the state is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from rune.core.execution.decision import LATENESS, Applied, FinishExecution, Timer
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    SignalReceived,
    TokenFact,
)
from rune.core.execution.outcome import Error
from rune.core.execution.state import (
    Scope,
    State,
    in_cancelled_region,
    join_waits_since,
    own_timer,
    paused_since,
    started,
)
from rune.core.execution.token import START, Arrived, Path, Token, TokenPurpose
from rune.core.execution.transition import Transition
from rune.core.plan.model import NodePlan, Plan

Verdict = Literal["run", "done", "void", "parked", "cancelled", "unknown"]

OVERDUE = Error("TIMEOUT", "the execution took longer than its settings allow", engine=True)


def claim_verdict(plan: Plan, state: State, token: Token, now: int) -> Verdict:
    """Decide whether a claimed token runs. A paused execution parks it, and the resume sends it again. A join expires
    only if it waits and its timeout is over, whatever sent the token."""
    if state.ended or state.finish is not None:
        return "void"
    scope = state.scopes.get(token.path)
    if scope is None:
        return "done" if started(state, token.path) else "unknown"
    live = scope.live.get(token.node)
    if token.fate is TokenPurpose.EXPIRE:
        # A paused join does not expire: the resume arms its timer again.
        due = None if state.paused_at is not None else _join_due(plan, state, scope, token.node)
        return "done" if due is None or due > now else "run"
    if live is None:
        return "done" if token.node in scope.done else "unknown"
    if live.waiting or live.token.attempt != token.attempt or live.token.resumed != token.resumed:
        return "done"
    if state.paused_at is not None:
        live.parked = True
    if live.parked:
        return "parked"
    runs = live.token.fate is TokenPurpose.RUN or live.token.fate is TokenPurpose.OVERDUE
    if runs and in_cancelled_region(plan, state, token.node, token.path):
        return "cancelled"
    return "run"


def outcome_of(facts: Sequence[TokenFact], token: Token) -> TokenFact | None:
    """Return the fact that decided this attempt of a token, of those recorded about its node; None if none did."""
    for fact in facts:
        if type(fact) is NodeResult:
            return fact
        failed = type(fact) is AttemptFailed and fact.attempt == token.attempt
        suspended = type(fact) is NodeSuspended and fact.attempt == token.attempt and not token.resumed
        if failed or suspended:
            return fact
    return None


def change_pause(plan: Plan, state: State, fact: PauseChanged) -> Applied:
    """Pause or resume. A resume sends the parked tokens and postpones timeouts by the length of the pause."""
    applied = Applied()
    if fact.number <= state.pause_state:
        applied.fresh = False
        return applied
    state.pause_state = fact.number
    if fact.paused:
        state.paused_at = fact.at if state.paused_at is None else state.paused_at
        return applied
    if state.paused_at is not None:
        state.pauses.append((state.paused_at, fact.at))
    state.paused_at = None
    for scope in state.scopes.values():
        for live in scope.live.values():
            if live.parked:
                live.parked = False
                applied.emitted.append(live.token)
    applied.armed += timers_of(plan, state)
    return applied


def note_late(state: State) -> Applied:
    """Note that it is recorded that the execution is late."""
    applied = Applied(fresh=not (state.late or state.ended))
    if applied.fresh:
        state.late = True
        applied.disarmed.append(LATENESS)
    return applied


def deliver_signal(plan: Plan, state: State, fact: SignalReceived) -> Applied:
    """Resume the token that has waited longest for the signal, or store the signal until a token waits for it."""
    act = Transition(plan, state, fact.at)
    if fact.id in state.received_signals or state.ended:
        act.applied.fresh = False
        return act.applied
    state.received_signals.add(fact.id)
    act.route_signal(fact)
    return act.applied


def end_execution(state: State, fact: ExecutionEnded) -> Applied:
    """Mark the state as ended, so that no further token starts."""
    applied = Applied(fresh=not state.ended)
    state.finish = FinishExecution(fact.status, fact.error, fact.failed_items)
    state.ended = True
    state.scopes.clear()
    state.waiting_for_signal.clear()
    state.pending_signals.clear()
    return applied


def fire_timer(plan: Plan, state: State, timer: Timer, now: int) -> Applied:
    """Fire a timer. An early timer is armed again for its due time; one whose token is gone is dropped."""
    act = Transition(plan, state, now)
    if state.ended:
        return act.applied
    if timer.kind == "finish":
        act.applied.finish = state.finish
    elif timer.kind == "deadline":
        _deadline(plan, state, act, timer, now)
    elif timer.kind == "late":
        _lateness(plan, state, act, now)
    else:
        scope = state.scopes.get(timer.path)
        if scope is None:
            return act.applied
        if timer.kind == "join":
            _expire(plan, state, act, scope, timer, now)
        else:
            _resume(act, scope, timer, now)
    return act.applied


def _deadline(plan: Plan, state: State, act: Transition, timer: Timer, now: int) -> None:
    due = state.started_at + (plan.timeout or 0) + paused_since(state, state.started_at)
    if state.paused_at is not None:
        return
    if due > now:
        act.applied.armed.append((timer, due))
    else:
        act.finish(FinishExecution("failed", OVERDUE))


def _lateness(plan: Plan, state: State, act: Transition, now: int) -> None:
    if plan.expect_within is None or state.late:
        return
    due = state.started_at + plan.expect_within
    if due > now:
        act.applied.armed.append((LATENESS, due))
    else:
        act.applied.late = True


def _expire(plan: Plan, state: State, act: Transition, scope: Scope, timer: Timer, now: int) -> None:
    node = plan.nodes[timer.node]
    due = _join_due(plan, state, scope, timer.node)
    if due is None or state.paused_at is not None:
        return
    if due > now:
        act.applied.armed.append((timer, due))
    else:
        act.applied.emitted.append(
            Token(node.index, scope.path, arrived=_arrivals(scope, node), fate=TokenPurpose.EXPIRE)
        )


def _join_due(plan: Plan, state: State, scope: Scope, node: int) -> int | None:
    """Return when the timeout of a join is over, or None if the node is no waiting join with a timeout."""
    if not 0 <= node < len(plan.nodes):
        return None
    planned = plan.nodes[node]
    since = join_waits_since(planned, scope)
    if since is None or planned.timeout is None:
        return None
    return since + planned.timeout + paused_since(state, since)


def _arrivals(scope: Scope, node: NodePlan) -> tuple[Arrived, ...]:
    """Return the arrivals of an expired join, dead or alive: only these are visible to its successors."""
    barrier = scope.barriers.get(node.index)
    if barrier is None:
        return ()
    return tuple(
        Arrived(edge, arrival.payload or START) for edge, arrival in sorted(barrier.arrivals.items())
    )


def _resume(act: Transition, scope: Scope, timer: Timer, now: int) -> None:
    live = scope.live.get(timer.node)
    if live is None or not live.waiting or live.wakes_at is None or own_timer(live) != timer:
        return
    if live.wakes_at > now:
        act.applied.armed.append((timer, live.wakes_at))
        return
    if live.due is None or live.due > now:
        live.token = replace(live.token, fate=TokenPurpose.OVERDUE)
    act.wake(scope, live)
    act.propagate_counts(scope)


def timers_of(plan: Plan, state: State) -> list[tuple[Timer, int]]:
    """Return every timer that the state needs, with its due time. A fold arms these again."""
    timers: list[tuple[Timer, int]] = []
    if state.finish is not None:
        timers.append((Timer("finish"), 0))
    if plan.timeout is not None and state.paused_at is None:
        due = state.started_at + plan.timeout + paused_since(state, state.started_at)
        timers.append((Timer("deadline"), due))
    if plan.expect_within is not None and not state.late:
        timers.append((LATENESS, state.started_at + plan.expect_within))
    for scope in state.scopes.values():
        for live in scope.live.values():
            if live.waiting and live.wakes_at is not None:
                timers.append((own_timer(live), live.wakes_at))
        if state.paused_at is None:
            timers += _join_timers(plan, state, scope, scope.path)
    return timers


def _join_timers(plan: Plan, state: State, scope: Scope, path: Path) -> list[tuple[Timer, int]]:
    candidates = set(scope.barriers)
    candidates.update(plan.nodes[split].aggregator for split in scope.fans)
    candidates.update(plan.races if not path else plan.nodes[path[-2]].races)
    timers: list[tuple[Timer, int]] = []
    for index in sorted(candidates - {-1}):
        due = _join_due(plan, state, scope, index)
        if due is not None:
            timers.append((Timer("join", index, path), due))
    return timers
