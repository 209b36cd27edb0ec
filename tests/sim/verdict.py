"""The verdict on one simulated execution: the invariants, and the oracle's second opinion."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from rune.core.apply import apply
from rune.core.fact import Attempt, End, Fact, Result
from rune.core.fold import fold
from rune.core.lineage import Path
from rune.core.plan import Plan
from rune.core.state import Live, Scope, State
from rune.core.step import step_unrun
from rune.core.token import Fate
from tests.oracle.choices import Expected
from tests.oracle.model import Model
from tests.oracle_check import Disagreement, Past, check_past
from tests.sim.journal import Violation
from tests.sim.store import Store
from tests.sim.world import World


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
    for timer, times in store.fired.items():
        if times > 1:
            raise Violation(f"{timer} fired {times} times")


def _dispatchers(store: Store) -> set[int]:
    return {node.index for node in store.plan.nodes if node.fans_out}


def check_fold(world: World, rng: Random) -> None:
    """The state is the fold of the journal, whatever order the facts are read in."""
    memory = world.store.memory
    if memory is None or world.store.folded_under != world.store.incarnation or world.journal.end is not None:
        return
    if world.journal.facts.keys() - world.store.applied_facts - {("start",)}:
        return
    facts = list(world.journal.facts.values())
    if any(isinstance(each, Result) and _closes_items(world.plan, each) for each in facts):
        return  # items that a closed fan-out had started without a fact may never start again: both are right
    rng.shuffle(facts)
    folded, _ = fold(world.plan, facts, world.now)
    live = settled(world.plan, memory.state)
    here, there = picture(live, world.now), picture(settled(world.plan, folded), world.now)
    if here != there:
        raise Violation(f"state is not the fold of the journal:\n  state {here}\n  fold  {there}")


def _closes_items(plan: Plan, fact: Result) -> bool:
    node = plan.nodes[fact.node]
    return (node.joins_items and fact.status == "failed") or bool(node.region)


def settled(plan: Plan, state: State) -> State:
    """A copy in which everything that follows without a fact has followed."""
    state = copy.deepcopy(state)
    state.paused_at = None
    while True:
        tokens = [
            live.token
            for scope in state.scopes.values()
            for live in scope.live.values()
            if live.token.fate in (Fate.SKIP, Fate.DISPATCH)
            and (live.token.fate is Fate.DISPATCH or plan.nodes[live.token.node].timeout is None)
        ]
        if not tokens:
            return state
        for token in tokens:
            apply(plan, state, step_unrun(plan, token, token.at))


def picture(state: State, now: int) -> Any:
    """What two equal states have in common; leases, parking and who leads an open race are left out."""
    scopes = {path: _scope_picture(scope, now) for path, scope in state.scopes.items()}
    finish = state.finish.status if state.finish else None
    return (scopes, finish, sorted(state.cancelled), state.failures)


def _scope_picture(scope: Scope, now: int) -> Any:
    live = {
        node: (each.token.attempt, each.token.resumed, each.token.fate, _is_asleep(each, now))
        for node, each in scope.live.items()
    }
    waiting = {
        node: {edge: (each.alive, each.payload, each.error) for edge, each in barrier.arrivals.items()}
        for node, barrier in scope.barriers.items()
        if not barrier.opened
    }
    fans = {split: (fan.count, bytes(fan.marks), fan.closed) for split, fan in scope.fans.items()}
    return (scope.count, sorted(scope.done), live, waiting, fans)


def _is_asleep(live: Live, now: int) -> bool:
    return live.waiting and (live.due is None or live.due > now)


def check_end(world: World, model: Model, start: Any) -> Expected:
    """One completion, one result per token, and all of it as the oracle says."""
    kinds = {(row.status, row.error.code if row.error else None) for row in world.completions}
    if len(kinds) != 1:
        raise Violation(f"completions: {kinds}")
    end = world.journal.end
    assert end is not None
    facts: list[Fact] = [fact for fact in world.journal.facts.values() if not isinstance(fact, End)]
    past = Past(world.plan, facts, end, start, world.now, lambda fact: _plain(fact.value))
    try:
        expected = check_past(past, model)
    except Disagreement as disagreement:
        raise Violation(*disagreement.args) from None
    _check_calls(world)
    return expected


def _plain(value: Any) -> Any:
    """Without the numbers of physical calls, which the oracle cannot know."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "call"}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _check_calls(world: World) -> None:
    """Every value that carries the number of a physical call carries one whose result was journaled."""
    stored: set[int] = set()
    seen: set[int] = set()
    for fact in world.journal.facts.values():
        if isinstance(fact, Result):
            if not world.plan.nodes[fact.node].pure and isinstance(fact.value, dict):
                stored.add(fact.value["call"])
            _calls(fact.value, seen)
        elif isinstance(fact, Attempt) and fact.failure.code == "LOST":
            raise Violation("a stale holder's failure was journaled")
    if seen - stored:
        raise Violation(f"values of calls whose results were never journaled: {sorted(seen - stored)}")


def _calls(value: Any, found: set[int]) -> None:
    if isinstance(value, dict):
        if "call" in value:
            found.add(value["call"])
        for each in value.values():
            _calls(each, found)
    elif isinstance(value, list):
        for each in value:
            _calls(each, found)
