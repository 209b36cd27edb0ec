"""Fan-outs: windows, caps, chunks, marks and failures of items."""

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
from tests.support.plans import NOW, ExecutionDriver, aggregator, conditional, node, plan, race, split

FAN = "start -> s -> x -> g -> z"


def items(execution: ExecutionDriver) -> list[int]:
    return sorted(token.path[-1] for token in execution.tokens.values() if token.path)


def test_window_slides_as_items_end() -> None:
    execution = ExecutionDriver(plan(FAN, s=split({"max_in_flight": 3}), g=aggregator()))
    execution.fan_out("s", 7)
    assert items(execution) == [0, 1, 2]

    execution.ok("x@/s:1")
    assert items(execution) == [0, 2, 3]
    execution.ok("x@/s:3", "x@/s:2")

    assert items(execution) == [0, 4, 5]


def test_given_window_counts_suspended_items() -> None:
    execution = ExecutionDriver(
        plan(FAN, s=split({"max_in_flight": 2}), x=node("wait", {"amount": 1}), g=aggregator())
    )
    execution.fan_out("s", 5)

    execution.suspend("x@/s:0", NOW + 1000)
    execution.suspend("x@/s:1", NOW + 1000)

    assert items(execution) == []
    execution.fire("wait", "x@/s:0")
    execution.ok("x@/s:0")
    assert items(execution) == [2]


def test_default_window_does_not_count_suspended_items() -> None:
    limits = Limits(window=2)
    execution = ExecutionDriver(
        plan(FAN, s=split(), x=node("wait", {"amount": 1}), g=aggregator()), limits=limits
    )
    execution.fan_out("s", 5)
    assert items(execution) == [0, 1]

    execution.suspend("x@/s:0", NOW + 1000)
    assert items(execution) == [1, 2]
    execution.suspend("x@/s:1", NOW + 1000)
    execution.suspend("x@/s:2", NOW + 1000)

    assert items(execution) == [3, 4]
    fan = execution.scope().fans[execution.plan.index["s"]]
    assert (fan.in_flight, fan.active) == (5, 2)


def test_resumed_item_counts_in_window_again() -> None:
    execution = ExecutionDriver(
        plan(FAN, s=split(), x=node("wait", {"amount": 1}), g=aggregator()), limits=Limits(window=1)
    )
    execution.fan_out("s", 4)
    execution.suspend("x@/s:0", NOW + 1000)
    execution.fire("wait", "x@/s:0")
    assert items(execution) == [0, 1]

    execution.ok("x@/s:0")
    assert items(execution) == [1]
    execution.ok("x@/s:1")

    assert items(execution) == [2]


def test_item_is_suspended_only_when_all_tokens_are() -> None:
    chains = "start -> s -> x -> g, s -> y -> g"
    wait = node("wait", {"amount": 1})
    execution = ExecutionDriver(
        plan(chains, s=split(), x=wait, y=wait, g=aggregator()), limits=Limits(window=1)
    )
    execution.fan_out("s", 2)

    execution.suspend("x@/s:0", NOW + 1000)
    assert "x@/s:1" not in execution.queue
    execution.suspend("y@/s:0", NOW + 1000)

    assert {"x@/s:1", "y@/s:1"} <= execution.queue


def test_transition_starts_at_most_max_items() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), g=aggregator()))
    execution.auto_decide = False

    execution.fan_out("s", 2 * MAX_ITEMS_PER_TRANSITION + 88)
    assert len(execution.state.scopes) == 1 + MAX_ITEMS_PER_TRANSITION
    assert execution.token("s").fate is TokenPurpose.DISPATCH
    execution.decide("s")
    assert len(execution.state.scopes) == 1 + 2 * MAX_ITEMS_PER_TRANSITION
    execution.decide("s")

    assert len(execution.state.scopes) == 2 * MAX_ITEMS_PER_TRANSITION + 89
    assert "s@/" not in execution.queue


def test_ended_item_does_not_duplicate_dispatch() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), g=aggregator()))
    execution.auto_decide = False
    execution.fan_out("s", 2_000)

    execution.ok("x@/s:0")

    assert len([name for name in execution.queue if name.startswith("s@")]) == 1
    assert execution.scope().fans[execution.plan.index["s"]].next == 2 * MAX_ITEMS_PER_TRANSITION


def test_items_without_body_are_dispatched_in_chunks() -> None:
    execution = ExecutionDriver(plan("start -> s -> g -> z", s=split(), g=aggregator()))
    execution.auto_decide = False

    execution.fan_out("s", MAX_ITEMS_PER_TRANSITION + 44)
    assert execution.queue == {"s@/"}
    assert len(execution.state.scopes) == 1
    execution.decide("s")

    assert execution.queue == {"g@/"}
    assert execution.token("g").items == MAX_ITEMS_PER_TRANSITION + 44


def test_nested_fan_outs_share_item_cap_and_keep_one_item() -> None:
    limits = Limits(items_in_flight=3)
    p = plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    execution = ExecutionDriver(p, limits=limits)
    execution.fan_out("s", 9)
    assert execution.queue == {"t@/s:0", "t@/s:1", "t@/s:2"}
    assert execution.state.active_items == 3

    execution.fan_out("t@/s:0", 4)
    assert execution.queue == {"x@/s:0/t:0", "t@/s:1", "t@/s:2"}
    execution.fan_out("t@/s:1", 4)
    assert "x@/s:1/t:0" in execution.queue
    execution.ok("x@/s:0/t:0")

    assert "x@/s:0/t:1" in execution.queue
    assert "x@/s:0/t:2" not in execution.queue


def test_cap_does_not_block_fan_out_of_suspended_items() -> None:
    wait = node("wait", {"amount": 1})
    execution = ExecutionDriver(
        plan(FAN, s=split({"max_in_flight": 3}), x=wait, g=aggregator()), limits=Limits(items_in_flight=1)
    )
    execution.fan_out("s", 4)
    assert items(execution) == [0]

    execution.suspend("x@/s:0", NOW + 1000)
    assert items(execution) == [1]
    execution.suspend("x@/s:1", NOW + 1000)
    execution.suspend("x@/s:2", NOW + 1000)

    assert items(execution) == []  # the window is full of suspended items
    execution.fire("wait", "x@/s:0")
    execution.ok("x@/s:0")
    assert items(execution) == [3]


def test_active_items_are_capped_at_ten_thousand() -> None:
    p = plan("start -> s -> x", s=split({"max_in_flight": 10_000}))
    state = State()
    (token,) = start_execution(p, state, NOW).emitted
    emitted = apply(p, state, step(p, token, FanOut(20_000), NOW)).emitted

    while emitted[-1].fate is TokenPurpose.DISPATCH:
        emitted = apply(p, state, step_unrun(p, emitted[-1], NOW)).emitted

    assert state.active_items == 10_000


def run_all(p: Plan, count: int, limits: Limits, outcome: Output | Failure) -> tuple[State, int]:
    """Run a fan-out to its end; return the state and the largest number of scopes."""
    state = State(limits=limits)
    tokens = start_execution(p, state, NOW).emitted
    max_scopes = 0
    while tokens:
        token: Token = tokens.pop(0)
        if token.fate is not TokenPurpose.RUN:
            decision = step_unrun(p, token, NOW)
        elif p.nodes[token.node].fans_out:
            decision = step(p, token, FanOut(count), NOW)
        else:
            decision = step(p, token, outcome if token.path else Output(), NOW)
        tokens += apply(p, state, decision).emitted
        max_scopes = max(max_scopes, len(state.scopes))
    return state, max_scopes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 700), st.integers(1, 300), st.booleans())
def test_every_item_runs_once_within_window(count: int, window: int, collected: bool) -> None:
    chains = FAN if collected else "start -> s -> x"
    p = plan(chains, s=split({"max_in_flight": window}), **({"g": aggregator()} if collected else {}))

    state, max_scopes = run_all(p, count, Limits(), Output())

    assert state.finish == FinishExecution("completed")
    assert list(state.scopes) == [()]
    assert max_scopes <= 1 + min(window, count)
    assert (state.active_items, state.root.count, state.root.active) == (0, 0, 0)


def test_ended_items_keep_only_marks() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g, s -> y -> g", s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.fan_out("s", 500)
    sizes = []

    for item in range(499):
        execution.ok(f"x@/s:{item}", f"y@/s:{item}")
        sizes.append((len(execution.state.scopes), sys.getsizeof(execution.scope().fans[1].marks)))

    assert set(sizes) == {(2, sys.getsizeof(bytearray(1000)))}
    execution.ok("x@/s:499", "y@/s:499", "g")
    assert execution.scope().fans[1].marks == bytearray()


def test_state_size_does_not_grow_with_ended_items() -> None:
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
def test_uncollected_failures_list_first_ten_in_lineage_order(order: range) -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> y, start -> o", s=split()))
    execution.fan_out("s", 12)
    execution.ok("o")

    for item in order:
        execution.fail(f"x@/s:{item}")

    assert execution.finish is not None
    assert execution.finish.status == "failed"
    error = execution.finish.error
    assert error is not None
    assert (error.code, error.details["count"], error.engine) == ("ITEMS_FAILED", 12, True)
    assert [each["index"] for each in error.details["first"]] == [[item] for item in range(10)]
    assert error.details["first"][0] == {
        "node": "x",
        "index": [0],
        "code": "BROKEN",
        "message": "x@/s:0 failed",
    }
    execution.check_fold()


def test_failed_items_are_ordered_numerically_at_every_depth() -> None:
    execution = ExecutionDriver(plan("start -> s -> t -> x", s=split(), t=split()))
    execution.fan_out("s", 2)
    execution.fan_out("t@/s:1", 11)
    execution.fan_out("t@/s:0", 1)

    execution.fail("x@/s:1/t:10", "x@/s:1/t:2", "x@/s:0/t:0")
    execution.ok(*[f"x@/s:1/t:{item}" for item in (0, 1, *range(3, 10))])

    assert execution.finish is not None
    assert execution.finish.error is not None
    assert [each["index"] for each in execution.finish.error.details["first"]] == [[0, 0], [1, 2], [1, 10]]


@pytest.mark.parametrize(
    ("chains", "failing", "status"),
    [
        ("start -> s -> x -> g", "x@/s:0", "completed"),
        ("start -> s -> x -> g, s -> y", "y@/s:0", "failed"),
        ("start -> s -> x -> g, s -> y", "x@/s:0", "completed"),
        ("start -> s -> x", "x@/s:0", "failed"),
    ],
)
def test_failure_fails_execution_only_without_aggregator(chains: str, failing: str, status: str) -> None:
    more = {"g": aggregator()} if "-> g" in chains else {}
    execution = ExecutionDriver(plan(chains, s=split(), **more))
    execution.fan_out("s", 1)

    execution.fail(failing)
    while execution.queue:
        execution.ok(next(iter(execution.queue)))

    assert execution.finish is not None
    assert execution.finish.status == status


def test_failed_inner_split_is_collected_by_outer_aggregator() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> t -> x -> h -> g", s=split(), t=split(), h=aggregator(), g=aggregator())
    )
    execution.fan_out("s", 1)

    execution.fail("t@/s:0")

    assert execution.queue == {"g@/"}
    execution.ok("g")
    assert execution.finish == FinishExecution("completed", failed_items=1)


def test_marks_distinguish_alive_dead_and_failed() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> s -> i -true-> x -> g, i -false-> y, i -true-> z -> g",
            s=split(),
            i=conditional(),
            g=aggregator(),
        )
    )
    execution.fan_out("s", 3)

    execution.ok("i@/s:0", outlet="false")
    execution.ok("i@/s:1", outlet="true")
    execution.ok("y@/s:0", "x@/s:1")
    execution.fail("z@/s:1")

    fan = execution.scope().fans[execution.plan.index["s"]]
    assert list(fan.marks) == [DEAD, DEAD, 1, FAILED, 0, 0]
    assert execution.waiting[-1] == ("g@/", 2, 3)


def test_explicit_halt_inside_split_halts_execution() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), x=node(error="halt"), g=aggregator()))
    execution.fan_out("s", 2)

    execution.fail("x@/s:1")

    assert execution.finish is not None
    assert execution.finish.status == "halted"


@pytest.mark.parametrize("policy", ["ignore", "branch"])
def test_handled_failure_continues_inside_item(policy: str) -> None:
    chains = "start -> s -> x -> y -> g" + (", x -!-> e -> g" if policy == "branch" else "")
    execution = ExecutionDriver(plan(chains, s=split(), x=node(error=policy), g=aggregator()))
    execution.fan_out("s", 1)

    execution.fail("x@/s:0")

    assert execution.queue == {"e@/s:0" if policy == "branch" else "y@/s:0"}


def test_timed_out_aggregator_starts_no_further_items() -> None:
    execution = ExecutionDriver(plan(FAN, s=split({"max_in_flight": 2}), g=aggregator(error="ignore")))
    execution.fan_out("s", 9)
    execution.ok("x@/s:0")
    assert items(execution) == [1, 2]

    execution.fire("join", "g")
    execution.ok("x@/s:1", "x@/s:2")

    assert execution.queue == {"z@/"}
    execution.ok("z")
    assert execution.finish == FinishExecution("completed")


def test_race_timeout_inside_item_counts_from_item_start() -> None:
    execution = ExecutionDriver(
        plan(
            "start -> s -> x -> m, s -> y -> m, m -> g",
            s=split({"max_in_flight": 1}),
            m=race({"timeout": 5}),
            g=aggregator(),
        )
    )
    execution.fan_out("s", 2)
    assert execution.due("join", "m@/s:0") == 5000
    execution.now += 2000
    execution.ok("x@/s:0", "m@/s:0", "y@/s:0")

    assert execution.due("join", "m@/s:1") == 7000


def test_many_failed_items_keep_first_ten_failures() -> None:
    p = plan("start -> s -> x", s=split({"max_in_flight": 5}))

    state, _ = run_all(p, 300, Limits(), Failure(Error("E", "no")))

    assert state.failures == 300
    assert len(state.first_failures) == 10
