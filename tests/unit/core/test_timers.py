"""The effect of due timers, and the timers that a state needs."""

from __future__ import annotations

import pytest

from rune.core.execution.control import claim_verdict, end_execution, fire_timer, note_late, timers_of
from rune.core.execution.decision import LATENESS, Applied, FinishExecution, Timer
from rune.core.execution.explain import expected_by
from rune.core.execution.fact import ExecutionEnded, ExecutionLate, ExecutionStarted, fact_key
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Output
from rune.core.execution.state import State, join_waits_since
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from tests.support.plans import (
    NOW,
    ExecutionDriver,
    aggregator,
    conditional,
    merge,
    node,
    node_plan,
    plan,
    quorum,
    race,
    split,
)

JOIN = "start -> a -> m, start -> b -> m, m -> z"
FAN = "start -> s -> x -> g -> z"


def is_empty(applied: Applied) -> bool:
    return not (applied.emitted or applied.armed or applied.disarmed or applied.finish)


@pytest.mark.parametrize(
    ("kind", "ms"),
    [
        (merge(), 300_000),
        (merge(parameters={"timeout": 5}), 5_000),
        (quorum(2), 300_000),
        (merge(parameters={"timeout": 0}), None),
        (race(), None),
        (node(), None),
    ],
)
def test_merge_timeout_is_armed_at_first_arrival(kind: dict[str, object], ms: int | None) -> None:
    execution = ExecutionDriver(plan(JOIN, m=kind))
    execution.now += 1000

    execution.ok("a")

    if ms is None:
        assert execution.timers == {}
    else:
        assert execution.due("join", "m") == 1000 + ms


@pytest.mark.parametrize(("given", "ms"), [(7, 7_000), (0, None)])
def test_join_timeout_setting_changes_default(given: int, ms: int | None) -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge(), settings={"join_timeout": given}))

    execution.ok("a")

    assert list(execution.timers.values()) == ([] if ms is None else [NOW + ms])


def test_dead_arrival_arms_join_timeout() -> None:
    execution = ExecutionDriver(
        plan("start -> i -true-> a -> m, i -false-> x, start -> b -> m", i=conditional(), m=merge())
    )

    execution.ok("i", outlet="false")

    assert execution.due("join", "m") == 300_000


@pytest.mark.parametrize(
    "chains", ["start -> w -> m, start -> b -> m", "start -> w -> v -> m, start -> b -> m"]
)
def test_join_behind_wait_node_has_no_default_timeout(chains: str) -> None:
    p = plan(chains, w=node("wait", {"amount": 1}), m=merge())

    assert node_plan(p, "m").timeout is None


def test_only_wait_nodes_of_same_scope_disable_default_timeout() -> None:
    inside = plan("start -> s -> w -> g", s=split(), w=node("wait", {"amount": 1}), g=aggregator())
    before = plan(
        "start -> w -> s -> x -> m, s -> y -> m, m -> g",
        s=split(),
        w=node("wait", {"amount": 1}),
        m=merge(),
        g=aggregator(),
    )

    assert node_plan(inside, "g").timeout is None
    assert node_plan(before, "m").timeout == 300_000
    assert node_plan(before, "g").timeout is None


def test_given_timeout_holds_behind_wait_node() -> None:
    p = plan(
        "start -> w -> m, start -> b -> m", w=node("wait", {"amount": 1}), m=merge(parameters={"timeout": 9})
    )

    assert node_plan(p, "m").timeout == 9_000


def test_aggregator_default_timeout_counts_from_latest_arrival() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), g=aggregator()))
    execution.fan_out("s", 3)
    execution.ok("x@/s:0")
    assert execution.due("join", "g") == 300_000
    execution.now += 200_000
    execution.ok("x@/s:1")

    applied = execution.fire("join", "g")

    assert applied.emitted == []
    assert execution.due("join", "g") == 500_000
    execution.fire("join", "g")
    assert execution.finish is not None
    assert execution.finish.status == "failed"
    assert execution.finish.error is not None
    assert execution.finish.error.code == "TIMEOUT"


def test_aggregator_given_timeout_counts_from_first_arrival() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), g=aggregator({"timeout": 10}, error="ignore")))
    execution.fan_out("s", 3)
    execution.now += 1000
    execution.ok("x@/s:0")
    execution.now += 9000
    execution.ok("x@/s:1")
    assert execution.due("join", "g") == 11_000

    execution.fire("join", "g")

    assert execution.queue == {"x@/s:2", "z@/"}
    execution.ok("x@/s:2", "z")
    assert execution.finish == FinishExecution("completed")
    execution.check_fold()


def test_race_timeout_fires_before_any_arrival() -> None:
    execution = ExecutionDriver(plan(JOIN, m=race({"timeout": 5}, error="ignore")))
    assert execution.due("join", "m") == 5_000

    execution.fire("join", "m")
    assert execution.queue == {"a@/", "b@/", "z@/"}
    execution.check_fold()
    execution.ok("a", "b", "z")

    assert execution.finish == FinishExecution("completed")
    assert execution.result("m").failure is not None


def test_timed_out_join_ignores_later_arrivals() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge(error="ignore")))
    execution.ok("a")
    execution.fire("join", "m")
    execution.ok("b")

    assert execution.queue == {"z@/"}
    assert execution.scope().barriers == {}


def test_join_timeout_under_halt_fails_execution() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))
    execution.ok("a")

    execution.fire("join", "m")

    assert execution.finish is not None
    assert execution.finish.status == "failed"


def test_open_and_timeout_of_join_are_exclusive() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge(error="ignore")))
    execution.auto_decide = False
    execution.ok("a")
    execution.fire("join", "m")
    expired = execution.tokens.pop("m@/")
    assert claim_verdict(execution.plan, execution.state, expired, execution.now) == "run"
    execution.ok("b")
    opened = execution.tokens.pop("m@/")
    assert claim_verdict(execution.plan, execution.state, expired, execution.now) == "done"

    first = apply(execution.plan, execution.state, step_unrun(execution.plan, expired, execution.now))
    second = apply(execution.plan, execution.state, step(execution.plan, opened, Output(), execution.now))

    assert (first.fresh, second.fresh) == (True, False)


def test_opened_join_disarms_timeout() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))
    execution.ok("a", "b")

    assert execution.timers == {}
    stale = fire_timer(
        execution.plan, execution.state, Timer("join", execution.plan.index["m"]), NOW + 300_000
    )
    assert is_empty(stale)
    execution.ok("m")
    assert is_empty(
        fire_timer(execution.plan, execution.state, Timer("join", execution.plan.index["m"]), NOW + 300_000)
    )


@pytest.mark.parametrize("kind", ["first", "latest", "scope"])
def test_early_join_timer_is_rearmed(kind: str) -> None:
    joins = {"first": merge(), "latest": merge(parameters={"timeout": 300}), "scope": race({"timeout": 300})}
    execution = ExecutionDriver(plan(JOIN, m=joins[kind]))
    if kind != "scope":
        execution.ok("a")

    applied = execution.fire("join", "m", at=NOW + 10)

    assert applied.armed == [(Timer("join", execution.plan.index["m"]), NOW + 300_000)]
    assert applied.emitted == []


@pytest.mark.parametrize(
    ("chains", "kinds"), [(JOIN, {"m": merge()}), (FAN, {"s": split(), "m": node(), "g": aggregator()})]
)
def test_join_without_arrivals_has_no_timer(chains: str, kinds: dict[str, dict[str, object]]) -> None:
    execution = ExecutionDriver(
        plan(chains, **{key: value for key, value in kinds.items() if f"> {key}" in chains})
    )
    join = node_plan(execution.plan, "g" if "s" in kinds else "m")
    if "s" in kinds:
        assert join_waits_since(join, execution.scope()) is None
        execution.fan_out("s", 2)

    assert join_waits_since(join, execution.scope()) is None
    assert is_empty(fire_timer(execution.plan, execution.state, Timer("join", join.index), NOW + 10**9))
    assert timers_of(execution.plan, execution.state) == []


def test_pause_shifts_join_timeout() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))
    execution.ok("a")
    execution.now += 100_000
    execution.pause()
    execution.now = NOW + 300_000
    assert is_empty(execution.fire("join", "m"))
    execution.now = NOW + 600_000
    execution.resume()

    assert execution.due("join", "m") == 800_000
    execution.check_fold()


def test_arrival_during_pause_counts_from_resume() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))
    execution.pause()
    execution.now += 50_000
    execution.ok("a")
    execution.now += 50_000
    execution.resume()

    assert execution.due("join", "m") == 50_000 + 300_000 + 50_000


def test_pause_shifts_execution_deadline() -> None:
    execution = ExecutionDriver(plan("start -> a", settings={"timeout": 60}))
    execution.now += 10_000
    execution.pause()
    assert is_empty(execution.fire("deadline"))
    execution.now = NOW + 100_000
    execution.resume()
    assert execution.due("deadline") == 150_000

    early = execution.fire("deadline", at=NOW + 149_999)
    assert early.armed == [(Timer("deadline"), NOW + 150_000)]
    execution.fire("deadline", at=NOW + 150_000)

    assert execution.finish is not None
    assert execution.finish.status == "failed"
    assert execution.finish.error is not None
    assert (execution.finish.error.code, execution.finish.error.engine) == ("TIMEOUT", True)


def test_lateness_is_postponed_by_no_pause_and_ends_nothing() -> None:
    execution = ExecutionDriver(plan("start -> a", settings={"expect_within": 60}))
    execution.now += 10_000
    execution.pause()

    assert expected_by(execution.plan, execution.state) == NOW + 60_000
    early = execution.fire("late", at=NOW + 59_999)
    assert (early.armed, early.late) == ([(LATENESS, NOW + 60_000)], False)
    applied = execution.fire("late")
    assert (applied.armed, applied.late, applied.finish) == ([], True, None)
    # It fires again until its fact is applied, whatever fails meanwhile.
    assert dict(timers_of(execution.plan, execution.state))[LATENESS] == NOW + 60_000
    noted = note_late(execution.state)
    assert (noted.fresh, noted.disarmed) == (True, [LATENESS])
    assert not note_late(execution.state).fresh
    assert not fire_timer(execution.plan, execution.state, LATENESS, NOW + 60_000).late
    assert LATENESS not in dict(timers_of(execution.plan, execution.state))
    execution.resume()
    execution.ok("a")
    assert execution.finish is not None
    assert execution.finish.status == "completed"


def test_lateness_of_ended_execution_is_dropped() -> None:
    execution = ExecutionDriver(plan("start -> a", settings={"expect_within": 60}))
    end_execution(execution.state, ExecutionEnded(NOW, "cancelled"))

    assert not fire_timer(execution.plan, execution.state, LATENESS, NOW + 60_000).late
    assert not note_late(execution.state).fresh
    assert expected_by(execution.plan, execution.state) is None
    other = ExecutionDriver(plan("start -> a"))
    assert expected_by(other.plan, other.state) is None
    assert is_empty(fire_timer(other.plan, other.state, LATENESS, NOW + 60_000))


def test_fold_of_late_execution_arms_no_timer() -> None:
    late = plan("start -> a", settings={"expect_within": 60})
    state, applied = fold(late, [ExecutionStarted(NOW)], NOW)
    assert (LATENESS, NOW + 60_000) in applied.armed
    state, applied = fold(late, [ExecutionStarted(NOW), ExecutionLate(NOW + 60_000)], NOW)
    assert state.late
    assert LATENESS not in dict(applied.armed)
    assert fact_key(ExecutionLate(NOW)) == fact_key(ExecutionLate(NOW + 1))


def test_wait_due_during_pause_resumes_after_pause() -> None:
    execution = ExecutionDriver(plan("start -> w -> z", w=node("wait", {"amount": 5})))
    execution.suspend("w", NOW + 5_000)
    execution.pause()

    parked = execution.fire("wait", "w")
    assert parked.emitted == []
    assert execution.live("w").parked
    execution.check_fold()
    execution.now += 1_000
    execution.resume()

    assert execution.queue == {"w@/"}
    execution.ok("w")
    assert execution.queue == {"z@/"}


def test_early_wait_timer_is_rearmed_and_fired_one_is_ignored() -> None:
    execution = ExecutionDriver(plan("start -> w", w=node("wait", {"amount": 5})))
    execution.suspend("w", NOW + 5_000)
    timer = execution.timer("wait", "w")

    assert execution.fire("wait", "w", at=NOW + 4_999).armed == [(timer, NOW + 5_000)]
    execution.fire("wait", "w")
    assert execution.queue == {"w@/"}
    assert is_empty(fire_timer(execution.plan, execution.state, timer, NOW + 6_000))
    execution.ok("w")
    assert is_empty(fire_timer(execution.plan, execution.state, timer, NOW + 6_000))


def test_retry_timer_of_earlier_attempt_is_ignored() -> None:
    execution = ExecutionDriver(
        plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False}))
    )
    execution.fail("x")
    stale = execution.timer("retry", "x")
    execution.fire("retry", "x")
    execution.fail("x")

    assert is_empty(fire_timer(execution.plan, execution.state, stale, NOW + 10**6))


def test_timer_of_token_waiting_for_signal_is_ignored() -> None:
    execution = ExecutionDriver(plan("start -> w", w=node("wait", {"resume": "signal"})))
    execution.suspend("w", signal="go")

    assert is_empty(
        fire_timer(execution.plan, execution.state, Timer("wait", execution.plan.index["w"]), NOW + 10**6)
    )


def test_timer_of_unknown_item_is_ignored() -> None:
    execution = ExecutionDriver(plan(FAN, s=split(), g=aggregator()))

    assert is_empty(
        fire_timer(execution.plan, execution.state, Timer("wait", execution.plan.index["x"], (1, 0)), NOW)
    )


def test_finish_timer_repeats_finish() -> None:
    execution = ExecutionDriver(plan("start -> a"))
    assert fire_timer(execution.plan, execution.state, Timer("finish"), NOW).finish is None
    execution.ok("a")

    assert fire_timer(execution.plan, execution.state, Timer("finish"), NOW).finish == FinishExecution(
        "completed"
    )


def test_timers_after_end_are_ignored() -> None:
    execution = ExecutionDriver(plan("start -> a", settings={"timeout": 1}))
    execution.ok("a")
    end_execution(execution.state, ExecutionEnded(NOW, "completed"))

    for timer in (Timer("finish"), Timer("deadline"), Timer("join", 1)):
        assert is_empty(fire_timer(execution.plan, execution.state, timer, NOW + 10**6))


def test_deadline_after_halt_is_ignored() -> None:
    execution = ExecutionDriver(plan("start -> a", settings={"timeout": 1}))
    execution.fail("a")

    assert is_empty(execution.fire("deadline"))
    assert execution.state.finish is not None
    assert execution.state.finish.status == "halted"


def test_timers_of_state_match_armed_timers() -> None:
    execution = ExecutionDriver(
        plan(
            """start -> a -> m, start -> b -> m, start -> w, start -> r,
            start -> s -> x -> q, s -> y -> q, q -> g""",
            settings={"timeout": 60},
            m=race({"timeout": 9}),
            w=node("wait", {"amount": 5}),
            r=node(retry={"max_attempts": 2, "initial_delay": 2, "jitter": False}),
            s=split(),
            q=race({"timeout": 4}),
            g=aggregator({"timeout": 30}),
        )
    )
    execution.suspend("w", NOW + 5_000)
    execution.fail("r")
    execution.fan_out("s", 2)
    execution.ok("x@/s:0", "q@/s:0")

    assert dict(timers_of(execution.plan, execution.state)) == execution.timers
    assert {(each.kind, due - NOW) for each, due in timers_of(execution.plan, execution.state)} == {
        ("deadline", 60_000),
        ("join", 9_000),
        ("wait", 5_000),
        ("retry", 2_000),
        ("join", 4_000),
        ("join", 30_000),
    }
    execution.state.paused_at = NOW
    assert {each.kind for each, _ in timers_of(execution.plan, execution.state)} == {"wait", "retry"}


def test_timers_of_finished_state_is_finish_timer() -> None:
    execution = ExecutionDriver(plan("start -> a"))
    execution.ok("a")

    assert timers_of(execution.plan, execution.state) == [(Timer("finish"), 0)]


def test_claim_of_expired_token_of_open_join_is_done() -> None:
    execution = ExecutionDriver(plan(JOIN, m=race({"timeout": 5})))
    execution.ok("a")

    expired = Token(execution.plan.index["m"], fate=TokenPurpose.EXPIRE)
    assert claim_verdict(execution.plan, execution.state, expired, execution.now) == "done"
    assert is_empty(fire_timer(execution.plan, State(), Timer("join", 1), NOW))


def test_join_does_not_expire_before_its_timeout_is_over() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge(parameters={"timeout": 5})))
    forged = Token(execution.plan.index["m"], fate=TokenPurpose.EXPIRE)
    due = NOW + 5_000
    assert claim_verdict(execution.plan, execution.state, forged, due) == "done"

    execution.ok("a")

    assert claim_verdict(execution.plan, execution.state, forged, due - 1) == "done"
    assert claim_verdict(execution.plan, execution.state, forged, due) == "run"


def test_node_without_timeout_does_not_expire() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))
    forged = Token(execution.plan.index["z"], fate=TokenPurpose.EXPIRE)

    assert claim_verdict(execution.plan, execution.state, forged, NOW + 10**9) == "done"


def test_token_of_a_node_that_does_not_exist_expires_nothing() -> None:
    execution = ExecutionDriver(plan(JOIN, m=merge()))

    for index in (-1, len(execution.plan.nodes)):
        forged = Token(index, fate=TokenPurpose.EXPIRE)
        assert claim_verdict(execution.plan, execution.state, forged, NOW + 10**9) == "done"
