"""Pause, resume, signal and end an execution, and decide whether a claimed token may run."""

from __future__ import annotations

from typing import Literal

from rune.core.execution.decision import Applied, FinishExecution
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived
from rune.core.execution.state import State, in_cancelled_region, started
from rune.core.execution.timers import timers_of
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import Transition
from rune.core.plan.model import Plan

Verdict = Literal["run", "done", "void", "parked", "cancelled", "unknown"]


def claim_verdict(plan: Plan, state: State, token: Token) -> Verdict:
    """Decide whether a claimed token runs. A paused execution parks it, and the resume sends it again."""
    if state.ended or state.finish is not None:
        return "void"
    scope = state.scopes.get(token.path)
    if scope is None:
        return "done" if started(state, token.path) else "unknown"
    live = scope.live.get(token.node)
    # A paused join does not expire: the resume arms its timer again.
    if token.fate is TokenPurpose.EXPIRE and state.paused_at is not None:
        return "done"
    if token.fate is TokenPurpose.EXPIRE:
        return "done" if token.node in scope.done or live is not None else "run"
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
