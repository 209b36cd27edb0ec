"""The verdict on one simulated execution: the invariants, and the oracle's second opinion."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from rune.core.apply import apply
from rune.core.fact import Attempt, Choice, End, Result
from rune.core.fold import fold
from rune.core.lineage import Path
from rune.core.plan import Plan
from rune.core.state import Live, Scope, State
from rune.core.step import step_unrun
from rune.core.token import Fate
from rune.core.values import failure_value
from tests.oracle.choices import Choices, Expected
from tests.oracle.compare import differences
from tests.oracle.evaluate import check_choices, evaluate
from tests.oracle.model import Model
from tests.sim.journal import Violation
from tests.sim.store import Store
from tests.sim.world import World

OracleKey = tuple[str, tuple[tuple[str, int], ...]]


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
    results, skipped = _replayed(world, end)
    choices = _choices(world, results, skipped, model)
    expected = evaluate(model, start, choices)
    _compare(world, model, expected, choices, end, results, skipped)
    _check_calls(world)
    return expected


def _replayed(world: World, end: End) -> tuple[dict[tuple[int, Path], Result], list[tuple[int, Path]]]:
    """The results of the journal, and the skips that follow from them."""
    facts = [fact for fact in world.journal.facts.values() if not isinstance(fact, End)]
    state, applied = fold(world.plan, facts, world.now)
    if end.status != "cancelled":
        if applied.finish is None:
            raise Violation(f"ended as {end.status}, but the journal does not lead there")
        if end.status == "completed" and applied.finish.status != "completed":
            raise Violation(f"ended as completed, the journal says {applied.finish}")
        if end.status == "completed" and len(state.scopes) != 1:
            raise Violation("completed with items that have not ended")
    results = {(f.node, f.path): f for f in facts if isinstance(f, Result)}
    return results, applied.skipped


def _key(plan: Plan, node: int, path: Path) -> OracleKey:
    return plan.ids[node], tuple((plan.ids[path[i]], path[i + 1]) for i in range(0, len(path), 2))


def _choices(
    world: World, results: dict[tuple[int, Path], Result], skipped: list[tuple[int, Path]], model: Model
) -> Choices:
    plan = world.plan
    edges = plan.definition.edges
    opened, timed_out, cancelled = {}, set(), set()
    for (node, path), fact in results.items():
        key = _key(plan, node, path)
        if plan.nodes[node].is_join and plan.nodes[node].opens != "all" and fact.status != "skipped":
            opened[key] = tuple(edges[each.edge].id for each in fact.arrived)
        if fact.failure is not None and fact.failure.code == "TIMEOUT":
            timed_out.add(key)
            opened.pop(key, None)
        if fact.status == "cancelled":
            cancelled.add(key)
            opened.pop(key, None)
    for row in world.journal.facts.values():
        if isinstance(row, Choice) and (row.node, row.path) not in results:
            opened[_key(plan, row.node, row.path)] = tuple(edges[each.edge].id for each in row.arrived)
    return Choices(opened, frozenset(timed_out), frozenset(cancelled), _unstarted(plan, results, skipped))


def _unstarted(
    plan: Plan, results: dict[tuple[int, Path], Result], skipped: list[tuple[int, Path]]
) -> frozenset[Any]:
    """Items of a fan-out of which nothing is known: only one that was closed early has such."""
    touched = {path[:cut] for _, path in [*results, *skipped] for cut in range(2, len(path) + 1, 2)}
    found = set()
    for (node, path), fact in results.items():
        aggregator = plan.nodes[node].aggregator
        closed = (aggregator, path) in results and results[(aggregator, path)].status != "ok"
        for item in range(fact.items or 0):
            inner = (*path, node, item)
            if closed and inner not in touched:
                found.add(_key(plan, node, inner)[1])
    return frozenset(found)


def _compare(
    world: World,
    model: Model,
    expected: Expected,
    choices: Choices,
    end: End,
    results: dict[tuple[int, Path], Result],
    skipped: list[tuple[int, Path]],
) -> None:
    plan = world.plan
    actual: dict[OracleKey, tuple[str, Any]] = {}
    for (node, path), fact in results.items():
        names = {"ok": "success"}
        value = failure_value(fact) if fact.status == "failed" else _plain(fact.value)
        actual[_key(plan, node, path)] = (names.get(fact.status, fact.status), value)
    for node, path in skipped:
        actual[_key(plan, node, path)] = ("skipped", None)
    for node in plan.triggers:
        actual[_key(plan, node, ())] = ("success", _plain(world.nodes.start))
    if end.status == "completed":
        problems = differences(expected, actual) + check_choices(model, expected, choices)
        if expected.status != "completed":
            problems.append(f"completed, expected {expected.status}")
    elif end.status == "cancelled":
        problems = _disagreements(expected, actual)
    else:
        problems = _disagreements(expected, actual)
        if (end.status, end.error.code if end.error else None) not in expected.endings:
            problems.append(f"ended as {end.status} {end.error}, expected {expected.endings}")
    if problems:
        raise Violation("\n  ".join(["the oracle disagrees:", *problems[:5]]))


def _disagreements(expected: Expected, actual: dict[OracleKey, tuple[str, Any]]) -> list[str]:
    """An execution that was stopped early: what it has must be right, what is missing was not reached."""
    shown = {key: value for key, value in actual.items() if key not in expected.undecided}
    known = {key: value for key, value in expected.results.items() if key in shown}
    partial = copy.copy(expected)
    partial.results = known
    return [each for each in differences(partial, shown) if "found skipped" not in each]


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
