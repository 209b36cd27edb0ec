"""Invariants of a simulation, and the comparison of its executions with the oracle."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from rune.core.execution.control import OVERDUE, timers_of
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, Fact, NodeResult, PauseChanged, RaceWinner
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.state import LiveToken, Scope, State, in_cancelled_region
from rune.core.execution.step import step_unrun
from rune.core.execution.token import Path, TokenPurpose, within
from rune.core.execution.transition import apply
from rune.core.plan.model import Plan
from tests.simulation.execution import Execution
from tests.simulation.external_results import external_results
from tests.simulation.journal import ViolationError
from tests.simulation.oracle.choices import Expected
from tests.simulation.oracle_check import EndedExecution, OracleMismatchError, check_against_oracle
from tests.simulation.simulator import Simulator
from tests.simulation.store import Store
from tests.simulation.values import collect_call_numbers, without_call_numbers


def check_counts(state: State) -> None:
    """The counters of every scope equal its live tokens and items."""
    items: dict[Path, int] = {}
    busy: dict[Path, int] = {}
    for path, scope in state.scopes.items():
        if path:
            items[path[:-2]] = items.get(path[:-2], 0) + 1
            busy[path[:-2]] = busy.get(path[:-2], 0) + (scope.active > 0)
    for path, scope in state.scopes.items():
        expected = len(scope.live) + items.get(path, 0)
        active = sum(not live.waiting for live in scope.live.values()) + busy.get(path, 0)
        if scope.count != expected or scope.active != active:
            counted = f"{scope.count} of {expected}, active {scope.active} of {active}"
            raise ViolationError(f"counts of {path}: {counted}")
        if path and scope.count == 0:
            raise ViolationError(f"scope {path} has ended but was not removed")


def check_single_emission(store: Store) -> None:
    """A token is emitted once, and a timer fires once per attempt."""
    for key, times in store.emission_counts.items():
        if times > 1 and key[0] not in _fan_outs(store):
            raise ViolationError(f"{key} was emitted {times} times")
    for (timer, attempt), times in store.fire_counts.items():
        if times > 1:
            raise ViolationError(f"{timer} of attempt {attempt} fired {times} times")


def _fan_outs(store: Store) -> set[int]:
    return {node.index for node in store.plan.nodes if node.fans_out}


def check_signals(plan: Plan, state: State) -> None:
    """Signal waits are indexed, match no stored signal, and are not part of a cancelled region."""
    for scope in state.scopes.values():
        for node, live in scope.live.items():
            if live.waiting and in_cancelled_region(plan, state, node, scope.path):
                raise ViolationError(f"{live} waits in a region that was cancelled")
    signal_waits = {
        (live.signal, scope.path, node)
        for scope in state.scopes.values()
        for node, live in scope.live.items()
        if live.waiting and live.signal is not None
    }
    if signal_waits != {
        (name, *wait) for name, waiting in state.waiting_for_signal.items() for wait in waiting
    }:
        raise ViolationError(f"index of waits: {state.waiting_for_signal}, waiting tokens: {signal_waits}")
    for signal in state.pending_signals:
        for name, path, node in signal_waits:
            if name == signal.name and signal.path in (None, path):
                raise ViolationError(f"{signal} is undelivered while {node}@{path} waits for it")


def check_timers(execution: Execution) -> None:
    """Every due time of the state has an armed timer."""
    memory = execution.store.current
    if memory is None or memory.state.ended:
        return
    for timer, due in timers_of(execution.case.plan, memory.state):
        if timer not in memory.timers and (memory.state.finish is None or timer.kind == "finish"):
            raise ViolationError(f"{timer}, due at {due}, is not armed")


def check_max_parallel(sim: Simulator) -> None:
    """At most `max_parallel` tokens run; workers that lost their claim are not counted."""
    for execution in sim.executions.values():
        limit, memory = execution.case.plan.max_parallel, execution.store.current
        if limit is None or memory is None:
            continue
        running = set()
        for worker in sim.workers:
            if worker.execution is execution and worker.running is not None:
                token, folds = worker.running
                scope = memory.state.scopes.get(token.path)
                live = scope.live.get(token.node) if scope is not None else None
                is_current = (
                    live is not None and not live.waiting and _attempt_key(live.token) == _attempt_key(token)
                )
                if is_current and folds == execution.store.folds:
                    running.add(token.key)
        if len(running) > limit:
            raise ViolationError(f"{len(running)} tokens run, max_parallel is {limit}: {running}")


def _attempt_key(token: Any) -> tuple[int, bool]:
    return token.attempt, token.resumed


def check_fold(execution: Execution, now: int, rng: Random) -> None:
    """The state equals the fold of the journal, for any order of its facts."""
    memory, journal, plan = execution.store.current, execution.journal, execution.case.plan
    if memory is None or journal.end is not None:
        return
    if (
        journal.facts.keys()
        - execution.store.applied_facts
        - {("start",)}
        - _facts_without_effect(journal.facts)
    ):
        return
    facts = list(journal.facts.values())
    if any(_closes_items(plan, each) for each in facts):
        return  # tokens without facts in a closed fan-out or race may be missing from the fold
    if memory.state.finish is not None and memory.state.finish.error == OVERDUE:
        return  # only the terminal row records this
    rng.shuffle(facts)
    folded, _ = fold(plan, facts, now)
    actual = (state_summary(settled_state(plan, memory.state), now), pause_summary(memory.state))
    expected = (state_summary(settled_state(plan, folded), now), pause_summary(folded))
    if actual != expected:
        raise ViolationError(f"state is not the fold of the journal:\n  state {actual}\n  fold  {expected}")


def _facts_without_effect(facts: dict[tuple[Any, ...], Fact]) -> set[tuple[Any, ...]]:
    return {key for key in facts if key[0] == "begun"} | {
        key for key, each in facts.items() if isinstance(each, NodeResult) and each.kept
    }


def _closes_items(plan: Plan, fact: Fact) -> bool:
    if not isinstance(fact, NodeResult | RaceWinner):
        return False
    node = plan.nodes[fact.node]
    gave_up = node.joins_items and isinstance(fact, NodeResult) and fact.status == "failed"
    return gave_up or bool(node.region)


def settled_state(plan: Plan, state: State) -> State:
    """A copy of the state after all steps that write no fact."""
    state = copy.deepcopy(state)
    state.paused_at = None
    while True:
        tokens = [
            live.token
            for scope in state.scopes.values()
            for live in scope.live.values()
            if live.token.fate in (TokenPurpose.SKIP, TokenPurpose.DISPATCH)
            and (live.token.fate is TokenPurpose.DISPATCH or plan.nodes[live.token.node].timeout is None)
        ]
        if not tokens:
            return state
        for token in tokens:
            apply(plan, state, step_unrun(plan, token, token.at))


def state_summary(state: State, now: int) -> Any:
    """The comparable part of a state.

    Leases, parked tokens, the order in an open race and the receiver of a signal without a taking fact are left out.
    """
    scopes = {path: _scope_summary(scope, now) for path, scope in state.scopes.items()}
    finish = state.finish.status if state.finish else None
    given_out = {live.token.signal for scope in state.scopes.values() for live in scope.live.values()}
    untaken = {signal.id for signal in state.pending_signals} | (given_out - {None})
    return (scopes, finish, sorted(state.cancelled), state.failures, untaken, state.received_signals)


def pause_summary(state: State) -> Any:
    """The comparable pause state."""
    return (state.pause_state, state.paused_at, state.pauses)


def _scope_summary(scope: Scope, now: int) -> Any:
    live = {
        node: (each.token.attempt, each.token.resumed, *_wait_state(each, now))
        for node, each in scope.live.items()
    }
    waiting = {
        node: {edge: (each.alive, each.payload, each.error) for edge, each in barrier.arrivals.items()}
        for node, barrier in scope.barriers.items()
        if not barrier.opened
    }
    fans = {split: (fan.count, bytes(fan.marks), fan.closed) for split, fan in scope.fans.items()}
    return (scope.count, sorted(scope.done), live, waiting, fans)


def _wait_state(live: LiveToken, now: int) -> tuple[Any, ...]:
    """Whether a token waits for time; waits for signals are equal, since the order of signals and timeouts is open."""
    waits_for_signal = (
        live.signal is not None or live.token.signal is not None or live.token.fate is TokenPurpose.OVERDUE
    )
    if waits_for_signal:
        return ("signal",)
    return (live.token.fate, live.waiting and (live.due is None or live.due > now))


def check_end(sim: Simulator, execution: Execution) -> Expected:
    """One kind of completion, and results as the oracle expects them."""
    kinds = {(row.status, row.error.code if row.error else None) for row in execution.completions}
    if len(kinds) != 1:
        raise ViolationError(f"completions: {kinds}")
    case, journal, end = execution.case, execution.journal, execution.journal.end
    assert end is not None
    facts: list[Fact] = [fact for fact in journal.facts.values() if not isinstance(fact, ExecutionEnded)]
    if end.error == OVERDUE:
        end = _check_timeout(execution, end)
    model = replace(case.model, external_results=external_results(sim, execution))
    if end.status == "completed":
        facts = _without_closed_items(case.plan, facts, sim.now)
    ended = EndedExecution(
        case.plan, facts, end, case.start, sim.now, lambda fact: without_call_numbers(execution.value(fact))
    )
    try:
        expected = check_against_oracle(ended, model)
    except OracleMismatchError as mismatch:
        raise ViolationError(*mismatch.args) from None
    if end.status == "completed" and expected.undecided:
        raise ViolationError(f"completed without {sorted(expected.undecided)[:5]}")
    return expected


def _without_closed_items(plan: Plan, facts: list[Fact], now: int) -> list[Fact]:
    """Drop facts of items in closed fan-outs.

    A fold does not start such items, but a worker may still store a first fact of one before the execution completes.
    """
    closing = [each for each in facts if _closes_items(plan, each)]
    state, _ = fold(plan, facts, now) if closing else (State(), None)
    open_items = [
        path
        for path in state.scopes
        if path and (around := state.scopes.get(path[:-2])) is not None and around.fans[path[-2]].closed
    ]
    return [
        each
        for each in facts
        if not any(within(getattr(each, "path", None) or (), path) for path in open_items)
    ]


def _check_timeout(execution: Execution, end: ExecutionEnded) -> ExecutionEnded:
    """Check that an execution timed out after its timeout plus pauses; the oracle sees it as cancelled."""
    facts = execution.journal.facts
    pause_summary = sorted(
        (each for each in facts.values() if isinstance(each, PauseChanged)), key=lambda c: c.number
    )
    paused = sum(
        max(0, later.at - earlier.at)
        for earlier, later in pairwise(pause_summary)
        if earlier.paused and later.at <= end.at
    )
    elapsed = end.at - facts[("start",)].at
    if elapsed < (execution.case.plan.timeout or 0) + paused:
        raise ViolationError(f"timed out after {elapsed} ms, of which {paused} in a pause")
    return ExecutionEnded(end.at, "cancelled", Error("TIMEOUT", ""))


def check_calls(sim: Simulator) -> None:
    """Every call number in a value belongs to a call whose result was journaled."""
    stored: set[int] = set()
    seen: set[int] = set()
    for execution in sim.executions.values():
        for fact in execution.journal.facts.values():
            if isinstance(fact, NodeResult):
                node = execution.case.plan.nodes[fact.node]
                if node.type.launches:
                    collect_call_numbers(fact.value, stored if fact.kept else seen)
                elif not node.pure and isinstance(fact.value, dict):
                    stored.add(fact.value["call"])
                collect_call_numbers(fact.value, seen)
            elif isinstance(fact, AttemptFailed) and fact.failure.code == "LOST":
                raise ViolationError("the failure of an expired lease was journaled")
    if seen - stored:
        raise ViolationError(f"values of calls whose results were never journaled: {sorted(seen - stored)}")
