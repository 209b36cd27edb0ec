"""The verdict on one simulated execution: the invariants, and the oracle's second opinion."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from rune.core.execution.fact import AttemptFailed, ExecutionEnded, Fact, NodeResult, PauseChanged, RaceWinner
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.state import LiveToken, Scope, State, in_cancelled_region
from rune.core.execution.step import step_unrun
from rune.core.execution.timers import OVERDUE, timers_of
from rune.core.execution.token import Path, TokenPurpose, within
from rune.core.execution.transition import apply
from rune.core.plan.model import Plan
from tests.simulation.answers import answers
from tests.simulation.execution import Execution
from tests.simulation.journal import Violation
from tests.simulation.oracle.choices import Expected
from tests.simulation.oracle_check import Disagreement, Past, check_past
from tests.simulation.store import Store
from tests.simulation.values import calls, plain
from tests.simulation.world import Realm


def check_counts(state: State) -> None:
    """Unfinished work exists if and only if it is counted, in every scope."""
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
            raise Violation(f"counts of {path}: {counted}")
        if path and scope.count == 0:
            raise Violation(f"scope {path} has ended and is still there")


def check_once(store: Store) -> None:
    """A join opens once, a timer fires once."""
    for key, times in store.openings.items():
        if times > 1 and key[0] not in _dispatchers(store):
            raise Violation(f"{key} was emitted {times} times")
    for (timer, attempt), times in store.fired.items():
        if times > 1:
            raise Violation(f"{timer} of attempt {attempt} fired {times} times")


def _dispatchers(store: Store) -> set[int]:
    return {node.index for node in store.plan.nodes if node.fans_out}


def check_signals(plan: Plan, state: State) -> None:
    """No signal is kept while somebody waits for it, who listens is who waits, and nobody waits in vain."""
    for scope in state.scopes.values():
        for node, live in scope.live.items():
            if live.waiting and in_cancelled_region(plan, state, node, scope.path):
                raise Violation(f"{live} waits, and a race that others won makes it pointless")
    listening = {
        (live.signal, scope.path, node)
        for scope in state.scopes.values()
        for node, live in scope.live.items()
        if live.waiting and live.signal is not None
    }
    if listening != {(name, *who) for name, waiting in state.waiting_for_signal.items() for who in waiting}:
        raise Violation(f"listening: {state.waiting_for_signal}, waiting: {listening}")
    for signal in state.pending_signals:
        for name, path, node in listening:
            if name == signal.name and signal.path in (None, path):
                raise Violation(f"{signal} is kept while {node}@{path} waits for it")


def check_owned(execution: Execution) -> None:
    """Whatever the state waits for by the clock has its timer."""
    memory = execution.store.current
    if memory is None or memory.state.ended:
        return
    for timer, due in timers_of(execution.case.plan, memory.state):
        if timer not in memory.timers and (memory.state.finish is None or timer.kind == "finish"):
            raise Violation(f"nothing will fire {timer}, due at {due}")


def check_parallel(world: Realm) -> None:
    """No more tokens of an execution run than may run at once; who lost its token is not counted."""
    for execution in world.executions.values():
        most, memory = execution.case.plan.max_parallel, execution.store.current
        if most is None or memory is None:
            continue
        running = set()
        for worker in world.workers:
            if worker.execution is execution and worker.running is not None:
                token, folds = worker.running
                scope = memory.state.scopes.get(token.path)
                live = scope.live.get(token.node) if scope is not None else None
                same = live is not None and not live.waiting and _try(live.token) == _try(token)
                if same and folds == execution.store.folds:
                    running.add(token.key)
        if len(running) > most:
            raise Violation(f"{len(running)} run at once, {most} may: {running}")


def _try(token: Any) -> tuple[int, bool]:
    return token.attempt, token.resumed


def check_fold(execution: Execution, now: int, rng: Random) -> None:
    """The state is the fold of the journal, whatever order the facts are read in."""
    memory, journal, plan = execution.store.current, execution.journal, execution.case.plan
    if memory is None or journal.end is not None:
        return
    if journal.facts.keys() - execution.store.applied_facts - {("start",)} - _begun(journal.facts):
        return
    facts = list(journal.facts.values())
    if any(_closes_items(plan, each) for each in facts):
        return  # what a closed fan-out or a decided race had begun without a fact may never begin again: both are right
    if memory.state.finish is not None and memory.state.finish.error == OVERDUE:
        return  # no fact but the terminal row says so
    rng.shuffle(facts)
    folded, _ = fold(plan, facts, now)
    here = (picture(settled(plan, memory.state), now), controls(memory.state))
    there = (picture(settled(plan, folded), now), controls(folded))
    if here != there:
        raise Violation(f"state is not the fold of the journal:\n  state {here}\n  fold  {there}")


def _begun(facts: dict[tuple[Any, ...], Fact]) -> set[tuple[Any, ...]]:
    return {key for key in facts if key[0] == "begun"} | {
        key for key, each in facts.items() if isinstance(each, NodeResult) and each.kept
    }


def _closes_items(plan: Plan, fact: Fact) -> bool:
    if not isinstance(fact, NodeResult | RaceWinner):
        return False
    node = plan.nodes[fact.node]
    gave_up = node.joins_items and isinstance(fact, NodeResult) and fact.status == "failed"
    return gave_up or bool(node.region)


def settled(plan: Plan, state: State) -> State:
    """A copy in which everything that follows without a fact has followed."""
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


def picture(state: State, now: int) -> Any:
    """What two equal states have in common; leases, parking, who leads an open race and whom a signal that no
    fact names as taken went to are left out."""
    scopes = {path: _scope_picture(scope, now) for path, scope in state.scopes.items()}
    finish = state.finish.status if state.finish else None
    given_out = {live.token.signal for scope in state.scopes.values() for live in scope.live.values()}
    untaken = {signal.id for signal in state.pending_signals} | (given_out - {None})
    return (scopes, finish, sorted(state.cancelled), state.failures, untaken, state.received_signals)


def controls(state: State) -> Any:
    """How often and how long the execution was paused."""
    return (state.pause_state, state.paused_at, state.pauses)


def _scope_picture(scope: Scope, now: int) -> Any:
    live = {
        node: (each.token.attempt, each.token.resumed, *_condition(each, now))
        for node, each in scope.live.items()
    }
    waiting = {
        node: {edge: (each.alive, each.payload, each.error) for edge, each in barrier.arrivals.items()}
        for node, barrier in scope.barriers.items()
        if not barrier.opened
    }
    fans = {split: (fan.count, bytes(fan.marks), fan.closed) for split, fan in scope.fans.items()}
    return (scope.count, sorted(scope.done), live, waiting, fans)


def _condition(live: LiveToken, now: int) -> tuple[Any, ...]:
    """Whether a token sleeps. Of several that want one signal, and of a signal and a timeout, no fact says yet
    which comes first."""
    asks = live.signal is not None or live.token.signal is not None or live.token.fate is TokenPurpose.OVERDUE
    if asks:
        return ("asks",)
    return (live.token.fate, live.waiting and (live.due is None or live.due > now))


def check_end(world: Realm, execution: Execution) -> Expected:
    """One completion, one result per token, and all of it as the oracle says."""
    kinds = {(row.status, row.error.code if row.error else None) for row in execution.completions}
    if len(kinds) != 1:
        raise Violation(f"completions: {kinds}")
    case, journal, end = execution.case, execution.journal, execution.journal.end
    assert end is not None
    facts: list[Fact] = [fact for fact in journal.facts.values() if not isinstance(fact, ExecutionEnded)]
    if end.error == OVERDUE:
        end = _timed_out(execution, end)
    model = replace(case.model, answers=answers(world, execution))
    if end.status == "completed":
        facts = _without_stragglers(case.plan, facts, world.now)
    past = Past(case.plan, facts, end, case.start, world.now, lambda fact: plain(fact.value))
    try:
        expected = check_past(past, model)
    except Disagreement as disagreement:
        raise Violation(*disagreement.args) from None
    if end.status == "completed" and expected.undecided:
        raise Violation(f"completed without {sorted(expected.undecided)[:5]}")
    return expected


def _without_stragglers(plan: Plan, facts: list[Fact], now: int) -> list[Fact]:
    """Once a list was given up, an item that had no fact yet is not started by a fold; whoever is still at it may
    write its first one when the execution is about to complete. Nothing follows from it."""
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


def _timed_out(execution: Execution, end: ExecutionEnded) -> ExecutionEnded:
    """An execution that took too long was stopped like one that is cancelled; and not before its time."""
    facts = execution.journal.facts
    controls = sorted(
        (each for each in facts.values() if isinstance(each, PauseChanged)), key=lambda c: c.number
    )
    paused = sum(
        max(0, later.at - earlier.at)
        for earlier, later in pairwise(controls)
        if earlier.paused and later.at <= end.at
    )
    took = end.at - facts[("start",)].at
    if took < (execution.case.plan.timeout or 0) + paused:
        raise Violation(f"timed out after {took} ms, of which {paused} in a pause")
    return ExecutionEnded(end.at, "cancelled", Error("TIMEOUT", ""))


def check_calls(world: Realm) -> None:
    """Every value that carries the number of a physical call carries one whose result was journaled."""
    stored: set[int] = set()
    seen: set[int] = set()
    for execution in world.executions.values():
        for fact in execution.journal.facts.values():
            if isinstance(fact, NodeResult):
                node = execution.case.plan.nodes[fact.node]
                if node.type.launches:
                    calls(fact.value, stored if fact.kept else seen)
                elif not node.pure and isinstance(fact.value, dict):
                    stored.add(fact.value["call"])
                calls(fact.value, seen)
            elif isinstance(fact, AttemptFailed) and fact.failure.code == "LOST":
                raise Violation("a stale holder's failure was journaled")
    if seen - stored:
        raise Violation(f"values of calls whose results were never journaled: {sorted(seen - stored)}")
