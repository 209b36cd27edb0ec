"""How a fan-out starts its items: never more than the window takes, never all in one act."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.execution.decision import DEAD, FAILED, FinishExecution
from rune.core.execution.outcome import Error, Failure, FanOut, Output
from rune.core.execution.state import State
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import MAX_ITEMS_PER_TRANSITION, apply, start_execution
from rune.core.limits import Limits
from rune.core.plan.model import Plan
from tests.unit.core.plans import NOW, Life, choose, gather, node, plan, race, split

FAN = "start -> s -> x -> g -> z"


def items(life: Life) -> list[int]:
    return sorted(token.path[-1] for token in life.tokens.values() if token.path)


def test_a_given_window_slides_without_a_convoy() -> None:
    life = Life(plan(FAN, s=split({"max_in_flight": 3}), g=gather()))
    life.fan("s", 7)
    assert items(life) == [0, 1, 2]

    life.ok("x@/s:1")
    assert items(life) == [0, 2, 3]
    life.ok("x@/s:3", "x@/s:2")

    assert items(life) == [0, 4, 5]


def test_a_given_window_counts_items_that_wait() -> None:
    life = Life(plan(FAN, s=split({"max_in_flight": 2}), x=node("wait", {"amount": 1}), g=gather()))
    life.fan("s", 5)

    life.sleep("x@/s:0", NOW + 1000)
    life.sleep("x@/s:1", NOW + 1000)

    assert items(life) == []
    life.fire("wait", "x@/s:0")
    life.ok("x@/s:0")
    assert items(life) == [2]


def test_the_default_window_does_not_count_items_that_only_wait() -> None:
    limits = Limits(window=2)
    life = Life(plan(FAN, s=split(), x=node("wait", {"amount": 1}), g=gather()), limits=limits)
    life.fan("s", 5)
    assert items(life) == [0, 1]

    life.sleep("x@/s:0", NOW + 1000)
    assert items(life) == [1, 2]
    life.sleep("x@/s:1", NOW + 1000)
    life.sleep("x@/s:2", NOW + 1000)

    assert items(life) == [3, 4]
    fan = life.scope().fans[life.plan.index["s"]]
    assert (fan.in_flight, fan.active) == (5, 2)


def test_a_woken_item_counts_again_and_takes_nobodys_place() -> None:
    life = Life(plan(FAN, s=split(), x=node("wait", {"amount": 1}), g=gather()), limits=Limits(window=1))
    life.fan("s", 4)
    life.sleep("x@/s:0", NOW + 1000)
    life.fire("wait", "x@/s:0")
    assert items(life) == [0, 1]

    life.ok("x@/s:0")
    assert items(life) == [1]
    life.ok("x@/s:1")

    assert items(life) == [2]


def test_an_item_with_two_tokens_waits_only_when_both_do() -> None:
    chains = "start -> s -> x -> g, s -> y -> g"
    wait = node("wait", {"amount": 1})
    life = Life(plan(chains, s=split(), x=wait, y=wait, g=gather()), limits=Limits(window=1))
    life.fan("s", 2)

    life.sleep("x@/s:0", NOW + 1000)
    assert "x@/s:1" not in life.queue
    life.sleep("y@/s:0", NOW + 1000)

    assert {"x@/s:1", "y@/s:1"} <= life.queue


def test_no_act_starts_more_than_a_chunk() -> None:
    life = Life(plan(FAN, s=split(), g=gather()))
    life.auto = False

    life.fan("s", 2 * MAX_ITEMS_PER_TRANSITION + 88)
    assert len(life.state.scopes) == 1 + MAX_ITEMS_PER_TRANSITION
    assert life.token("s").fate is TokenPurpose.DISPATCH
    life.decide("s")
    assert len(life.state.scopes) == 1 + 2 * MAX_ITEMS_PER_TRANSITION
    life.decide("s")

    assert len(life.state.scopes) == 2 * MAX_ITEMS_PER_TRANSITION + 89
    assert "s@/" not in life.queue


def test_a_dispatch_in_flight_is_not_doubled_by_items_that_end() -> None:
    life = Life(plan(FAN, s=split(), g=gather()))
    life.auto = False
    life.fan("s", 2_000)

    life.ok("x@/s:0")

    assert len([name for name in life.queue if name.startswith("s@")]) == 1
    assert life.scope().fans[life.plan.index["s"]].next == 2 * MAX_ITEMS_PER_TRANSITION


def test_items_that_end_at_once_are_dispatched_in_chunks_too() -> None:
    life = Life(plan("start -> s -> g -> z", s=split(), g=gather()))
    life.auto = False

    life.fan("s", MAX_ITEMS_PER_TRANSITION + 44)
    assert life.queue == {"s@/"}
    assert len(life.state.scopes) == 1
    life.decide("s")

    assert life.queue == {"g@/"}
    assert life.token("g").items == MAX_ITEMS_PER_TRANSITION + 44


def test_nested_items_share_the_cap_and_each_fan_out_keeps_one() -> None:
    limits = Limits(items_in_flight=3)
    p = plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=gather(), g=gather())
    life = Life(p, limits=limits)
    life.fan("s", 9)
    assert life.queue == {"t@/s:0", "t@/s:1", "t@/s:2"}
    assert life.state.active_items == 3

    life.fan("t@/s:0", 4)
    assert life.queue == {"x@/s:0/t:0", "t@/s:1", "t@/s:2"}
    life.fan("t@/s:1", 4)
    assert "x@/s:1/t:0" in life.queue
    life.ok("x@/s:0/t:0")

    assert "x@/s:0/t:1" in life.queue
    assert "x@/s:0/t:2" not in life.queue


def test_nobody_is_stuck_behind_the_cap_when_all_items_of_a_fan_out_wait() -> None:
    wait = node("wait", {"amount": 1})
    life = Life(
        plan(FAN, s=split({"max_in_flight": 3}), x=wait, g=gather()), limits=Limits(items_in_flight=1)
    )
    life.fan("s", 4)
    assert items(life) == [0]

    life.sleep("x@/s:0", NOW + 1000)
    assert items(life) == [1]
    life.sleep("x@/s:1", NOW + 1000)
    life.sleep("x@/s:2", NOW + 1000)

    assert items(life) == []  # the window is full of items that wait
    life.fire("wait", "x@/s:0")
    life.ok("x@/s:0")
    assert items(life) == [3]


def test_the_cap_is_ten_thousand() -> None:
    p = plan("start -> s -> x", s=split({"max_in_flight": 10_000}))
    state = State()
    (token,) = start_execution(p, state, NOW).emitted
    emitted = apply(p, state, step(p, token, FanOut(20_000), NOW)).emitted

    while emitted[-1].fate is TokenPurpose.DISPATCH:
        emitted = apply(p, state, step_unrun(p, emitted[-1], NOW)).emitted

    assert state.active_items == 10_000


def run_all(p: Plan, count: int, limits: Limits, outcome: Output | Failure) -> tuple[State, int]:
    """Run a fan-out to its end; answers the state and how many scopes there were at most."""
    state = State(limits=limits)
    tokens = start_execution(p, state, NOW).emitted
    most = 0
    while tokens:
        token: Token = tokens.pop(0)
        if token.fate is not TokenPurpose.RUN:
            decision = step_unrun(p, token, NOW)
        elif p.nodes[token.node].fans_out:
            decision = step(p, token, FanOut(count), NOW)
        else:
            decision = step(p, token, outcome if token.path else Output(), NOW)
        tokens += apply(p, state, decision).emitted
        most = max(most, len(state.scopes))
    return state, most


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 700), st.integers(1, 300), st.booleans())
def test_every_item_runs_once_within_its_window(count: int, window: int, collected: bool) -> None:
    chains = FAN if collected else "start -> s -> x"
    p = plan(chains, s=split({"max_in_flight": window}), **({"g": gather()} if collected else {}))

    state, most = run_all(p, count, Limits(), Output())

    assert state.finish == FinishExecution("completed")
    assert list(state.scopes) == [()]
    assert most <= 1 + min(window, count)
    assert (state.active_items, state.root.count, state.root.active) == (0, 0, 0)


def test_ended_items_leave_nothing_but_a_mark_per_edge() -> None:
    life = Life(plan("start -> s -> x -> g, s -> y -> g", s=split({"max_in_flight": 1}), g=gather()))
    life.fan("s", 500)
    sizes = []

    for item in range(499):
        life.ok(f"x@/s:{item}", f"y@/s:{item}")
        sizes.append((len(life.state.scopes), sys.getsizeof(life.scope().fans[1].marks)))

    assert set(sizes) == {(2, sys.getsizeof(bytearray(1000)))}
    life.ok("x@/s:499", "y@/s:499", "g")
    assert life.scope().fans[1].marks == bytearray()


def test_memory_does_not_grow_with_items_that_have_ended() -> None:
    p = plan("start -> s -> x", s=split({"max_in_flight": 10}))

    def objects(count: int) -> int:
        state, _ = run_all(p, count, Limits(), Output())
        gc.collect()
        seen, todo = set(), [state.scopes, state.first_failures, state.pauses, state.cancelled]
        while todo:
            each = todo.pop()
            if id(each) not in seen and not isinstance(each, type | Plan):
                seen.add(id(each))
                todo += gc.get_referents(each)
        return len(seen)

    assert objects(3_000) == objects(1_000)


@pytest.mark.parametrize("order", [range(12), range(11, -1, -1)])
def test_uncollected_failures_are_counted_and_the_first_ten_shown_in_lineage_order(order: range) -> None:
    life = Life(plan("start -> s -> x -> y, start -> o", s=split()))
    life.fan("s", 12)
    life.ok("o")

    for item in order:
        life.fail(f"x@/s:{item}")

    assert life.finish is not None
    assert life.finish.status == "failed"
    error = life.finish.error
    assert error is not None
    assert (error.code, error.details["count"], error.engine) == ("ITEMS_FAILED", 12, True)
    assert [each["index"] for each in error.details["first"]] == [[item] for item in range(10)]
    assert error.details["first"][0] == {
        "node": "x",
        "index": [0],
        "code": "BROKEN",
        "message": "x@/s:0 failed",
    }
    life.check_fold()


def test_items_ten_and_two_are_ordered_as_numbers_at_every_depth() -> None:
    life = Life(plan("start -> s -> t -> x", s=split(), t=split()))
    life.fan("s", 2)
    life.fan("t@/s:1", 11)
    life.fan("t@/s:0", 1)

    life.fail("x@/s:1/t:10", "x@/s:1/t:2", "x@/s:0/t:0")
    life.ok(*[f"x@/s:1/t:{item}" for item in (0, 1, *range(3, 10))])

    assert life.finish is not None
    assert life.finish.error is not None
    assert [each["index"] for each in life.finish.error.details["first"]] == [[0, 0], [1, 2], [1, 10]]


@pytest.mark.parametrize(
    ("chains", "failing", "status"),
    [
        ("start -> s -> x -> g", "x@/s:0", "completed"),
        ("start -> s -> x -> g, s -> y", "y@/s:0", "failed"),
        ("start -> s -> x -> g, s -> y", "x@/s:0", "completed"),
        ("start -> s -> x", "x@/s:0", "failed"),
    ],
)
def test_a_failure_fails_the_execution_only_where_no_list_shows_it(
    chains: str, failing: str, status: str
) -> None:
    more = {"g": gather()} if "-> g" in chains else {}
    life = Life(plan(chains, s=split(), **more))
    life.fan("s", 1)

    life.fail(failing)
    while life.queue:
        life.ok(next(iter(life.queue)))

    assert life.finish is not None
    assert life.finish.status == status


def test_a_failed_inner_split_shows_up_in_the_outer_list() -> None:
    life = Life(plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=gather(), g=gather()))
    life.fan("s", 1)

    life.fail("t@/s:0")

    assert life.queue == {"g@/"}
    life.ok("g")
    assert life.finish == FinishExecution("completed")


def test_marks_tell_alive_dead_and_failed() -> None:
    life = Life(
        plan(
            "start -> s -> i -true-> x -> g, i -false-> y, i -true-> z -> g",
            s=split(),
            i=choose(),
            g=gather(),
        )
    )
    life.fan("s", 3)

    life.ok("i@/s:0", outlet="false")
    life.ok("i@/s:1", outlet="true")
    life.ok("y@/s:0", "x@/s:1")
    life.fail("z@/s:1")

    fan = life.scope().fans[life.plan.index["s"]]
    assert list(fan.marks) == [DEAD, DEAD, 1, FAILED, 0, 0]
    assert life.waiting[-1] == ("g@/", 2, 3)


def test_explicit_halt_inside_a_split_halts() -> None:
    life = Life(plan(FAN, s=split(), x=node(error="halt"), g=gather()))
    life.fan("s", 2)

    life.fail("x@/s:1")

    assert life.finish is not None
    assert life.finish.status == "halted"


@pytest.mark.parametrize("policy", ["ignore", "branch"])
def test_a_handled_failure_inside_an_item_goes_on_in_it(policy: str) -> None:
    chains = "start -> s -> x -> y -> g" + (", x -!-> e -> g" if policy == "branch" else "")
    life = Life(plan(chains, s=split(), x=node(error=policy), g=gather()))
    life.fan("s", 1)

    life.fail("x@/s:0")

    assert life.queue == {"e@/s:0" if policy == "branch" else "y@/s:0"}


def test_an_aggregator_closed_by_its_timeout_starts_no_further_items() -> None:
    life = Life(plan(FAN, s=split({"max_in_flight": 2}), g=gather(error="ignore")))
    life.fan("s", 9)
    life.ok("x@/s:0")
    assert items(life) == [1, 2]

    life.fire("join", "g")
    life.ok("x@/s:1", "x@/s:2")

    assert life.queue == {"z@/"}
    life.ok("z")
    assert life.finish == FinishExecution("completed")


def test_the_timeout_of_a_race_runs_in_every_item_from_its_start() -> None:
    life = Life(
        plan(
            "start -> s -> x -> m, s -> y -> m, m -> g",
            s=split({"max_in_flight": 1}),
            m=race({"timeout": 5}),
            g=gather(),
        )
    )
    life.fan("s", 2)
    assert life.due("join", "m@/s:0") == 5000
    life.now += 2000
    life.ok("x@/s:0", "m@/s:0", "y@/s:0")

    assert life.due("join", "m@/s:1") == 7000


def test_a_failure_of_many_items_stays_an_error() -> None:
    p = plan("start -> s -> x", s=split({"max_in_flight": 5}))

    state, _ = run_all(p, 300, Limits(), Failure(Error("E", "no")))

    assert state.failures == 300
    assert len(state.first_failures) == 10
