"""What a due timer means, and which timers a state needs."""

from __future__ import annotations

import pytest

from rune.core.execution.control import claim_verdict, end_execution
from rune.core.execution.decision import Applied, FinishExecution, Timer
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Output
from rune.core.execution.state import State
from rune.core.execution.step import step, step_unrun
from rune.core.execution.timers import fire_timer, join_waits_since, timers_of
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from tests.unit.core.plans import NOW, Life, at, choose, gather, merge, most, node, plan, race, split

JOIN = "start -> a -> m, start -> b -> m, m -> z"
FAN = "start -> s -> x -> g -> z"


def nothing(applied: Applied) -> bool:
    return not (applied.emitted or applied.armed or applied.disarmed or applied.finish)


@pytest.mark.parametrize(
    ("kind", "ms"),
    [
        (merge(), 300_000),
        (merge(parameters={"timeout": 5}), 5_000),
        (most(2), 300_000),
        (merge(parameters={"timeout": 0}), None),
        (race(), None),
        (node(), None),
    ],
)
def test_a_merge_gives_up_after_its_first_arrival(kind: dict[str, object], ms: int | None) -> None:
    life = Life(plan(JOIN, m=kind))
    life.now += 1000

    life.ok("a")

    if ms is None:
        assert life.timers == {}
    else:
        assert life.due("join", "m") == 1000 + ms


@pytest.mark.parametrize(("given", "ms"), [(7, 7_000), (0, None)])
def test_settings_change_the_default(given: int, ms: int | None) -> None:
    life = Life(plan(JOIN, m=merge(), settings={"join_timeout": given}))

    life.ok("a")

    assert list(life.timers.values()) == ([] if ms is None else [NOW + ms])


def test_a_dead_arrival_starts_the_clock_too() -> None:
    life = Life(plan("start -> i -true-> a -> m, i -false-> x, start -> b -> m", i=choose(), m=merge()))

    life.ok("i", outlet="false")

    assert life.due("join", "m") == 300_000


@pytest.mark.parametrize(
    "chains", ["start -> w -> m, start -> b -> m", "start -> w -> v -> m, start -> b -> m"]
)
def test_behind_something_that_sleeps_there_is_no_default(chains: str) -> None:
    p = plan(chains, w=node("wait", {"amount": 1}), m=merge())

    assert at(p, "m").timeout is None


def test_what_sleeps_inside_the_items_counts_and_what_slept_before_the_item_does_not() -> None:
    inside = plan("start -> s -> w -> g", s=split(), w=node("wait", {"amount": 1}), g=gather())
    before = plan(
        "start -> w -> s -> x -> m, s -> y -> m, m -> g",
        s=split(),
        w=node("wait", {"amount": 1}),
        m=merge(),
        g=gather(),
    )

    assert at(inside, "g").timeout is None
    assert at(before, "m").timeout == 300_000
    assert at(before, "g").timeout is None


def test_a_given_timeout_holds_whatever_sleeps() -> None:
    p = plan(
        "start -> w -> m, start -> b -> m", w=node("wait", {"amount": 1}), m=merge(parameters={"timeout": 9})
    )

    assert at(p, "m").timeout == 9_000


def test_an_aggregator_stalls_from_its_latest_arrival() -> None:
    life = Life(plan(FAN, s=split(), g=gather()))
    life.fan("s", 3)
    life.ok("x@/s:0")
    assert life.due("join", "g") == 300_000
    life.now += 200_000
    life.ok("x@/s:1")

    applied = life.fire("join", "g")

    assert applied.emitted == []
    assert life.due("join", "g") == 500_000
    life.fire("join", "g")
    assert life.finish is not None
    assert life.finish.status == "failed"
    assert life.finish.error is not None
    assert life.finish.error.code == "TIMEOUT"


def test_a_given_timeout_of_an_aggregator_runs_from_the_first_arrival() -> None:
    life = Life(plan(FAN, s=split(), g=gather({"timeout": 10}, error="ignore")))
    life.fan("s", 3)
    life.now += 1000
    life.ok("x@/s:0")
    life.now += 9000
    life.ok("x@/s:1")
    assert life.due("join", "g") == 11_000

    life.fire("join", "g")

    assert life.queue == {"x@/s:2", "z@/"}
    life.ok("x@/s:2", "z")
    assert life.finish == FinishExecution("completed")
    life.check_fold()


def test_a_race_gives_up_from_the_opening_of_its_scope_even_before_any_arrival() -> None:
    life = Life(plan(JOIN, m=race({"timeout": 5}, error="ignore")))
    assert life.due("join", "m") == 5_000

    life.fire("join", "m")
    assert life.queue == {"a@/", "b@/", "z@/"}
    life.check_fold()
    life.ok("a", "b", "z")

    assert life.finish == FinishExecution("completed")
    assert life.result("m").failure is not None


def test_a_join_that_timed_out_is_closed_for_good() -> None:
    life = Life(plan(JOIN, m=merge(error="ignore")))
    life.ok("a")
    life.fire("join", "m")
    life.ok("b")

    assert life.queue == {"z@/"}
    assert life.scope().barriers == {}


def test_under_halt_a_join_timeout_fails_the_execution() -> None:
    life = Life(plan(JOIN, m=merge()))
    life.ok("a")

    life.fire("join", "m")

    assert life.finish is not None
    assert life.finish.status == "failed"


def test_opened_and_timed_out_exclude_each_other() -> None:
    life = Life(plan(JOIN, m=merge(error="ignore")))
    life.auto = False
    life.ok("a")
    life.fire("join", "m")
    expired = life.tokens.pop("m@/")
    assert claim_verdict(life.plan, life.state, expired) == "run"
    life.ok("b")
    opened = life.tokens.pop("m@/")
    assert claim_verdict(life.plan, life.state, expired) == "done"

    first = apply(life.plan, life.state, step_unrun(life.plan, expired, life.now))
    second = apply(life.plan, life.state, step(life.plan, opened, Output(), life.now))

    assert (first.fresh, second.fresh) == (True, False)


def test_an_opening_disarms_the_timeout() -> None:
    life = Life(plan(JOIN, m=merge()))
    life.ok("a", "b")

    assert life.timers == {}
    stale = fire_timer(life.plan, life.state, Timer("join", life.plan.index["m"]), NOW + 300_000)
    assert nothing(stale)
    life.ok("m")
    assert nothing(fire_timer(life.plan, life.state, Timer("join", life.plan.index["m"]), NOW + 300_000))


@pytest.mark.parametrize("kind", ["first", "latest", "scope"])
def test_an_early_timer_is_set_again_for_its_time(kind: str) -> None:
    joins = {"first": merge(), "latest": merge(parameters={"timeout": 300}), "scope": race({"timeout": 300})}
    life = Life(plan(JOIN, m=joins[kind]))
    if kind != "scope":
        life.ok("a")

    applied = life.fire("join", "m", at=NOW + 10)

    assert applied.armed == [(Timer("join", life.plan.index["m"]), NOW + 300_000)]
    assert applied.emitted == []


@pytest.mark.parametrize(
    ("chains", "kinds"), [(JOIN, {"m": merge()}), (FAN, {"s": split(), "m": node(), "g": gather()})]
)
def test_a_join_that_nothing_has_reached_waits_for_nothing(
    chains: str, kinds: dict[str, dict[str, object]]
) -> None:
    life = Life(plan(chains, **{key: value for key, value in kinds.items() if f"> {key}" in chains}))
    join = at(life.plan, "g" if "s" in kinds else "m")
    if "s" in kinds:
        assert join_waits_since(join, life.scope()) is None
        life.fan("s", 2)

    assert join_waits_since(join, life.scope()) is None
    assert nothing(fire_timer(life.plan, life.state, Timer("join", join.index), NOW + 10**9))
    assert timers_of(life.plan, life.state) == []


def test_a_pause_moves_the_timeout_of_a_join() -> None:
    life = Life(plan(JOIN, m=merge()))
    life.ok("a")
    life.now += 100_000
    life.pause()
    life.now = NOW + 300_000
    assert nothing(life.fire("join", "m"))
    life.now = NOW + 600_000
    life.resume()

    assert life.due("join", "m") == 800_000
    life.check_fold()


def test_an_arrival_in_a_pause_counts_from_the_resume() -> None:
    life = Life(plan(JOIN, m=merge()))
    life.pause()
    life.now += 50_000
    life.ok("a")
    life.now += 50_000
    life.resume()

    assert life.due("join", "m") == 50_000 + 300_000 + 50_000


def test_a_pause_moves_the_deadline_of_the_execution() -> None:
    life = Life(plan("start -> a", settings={"timeout": 60}))
    life.now += 10_000
    life.pause()
    assert nothing(life.fire("deadline"))
    life.now = NOW + 100_000
    life.resume()
    assert life.due("deadline") == 150_000

    early = life.fire("deadline", at=NOW + 149_999)
    assert early.armed == [(Timer("deadline"), NOW + 150_000)]
    life.fire("deadline", at=NOW + 150_000)

    assert life.finish is not None
    assert life.finish.status == "failed"
    assert life.finish.error is not None
    assert (life.finish.error.code, life.finish.error.engine) == ("TIMEOUT", True)


def test_a_wait_keeps_its_date_through_a_pause() -> None:
    life = Life(plan("start -> w -> z", w=node("wait", {"amount": 5})))
    life.sleep("w", NOW + 5_000)
    life.pause()

    parked = life.fire("wait", "w")
    assert parked.emitted == []
    assert life.live("w").parked
    life.check_fold()
    life.now += 1_000
    life.resume()

    assert life.queue == {"w@/"}
    life.ok("w")
    assert life.queue == {"z@/"}


def test_an_early_wait_is_set_again_and_a_fired_one_means_nothing_more() -> None:
    life = Life(plan("start -> w", w=node("wait", {"amount": 5})))
    life.sleep("w", NOW + 5_000)
    timer = life.timer("wait", "w")

    assert life.fire("wait", "w", at=NOW + 4_999).armed == [(timer, NOW + 5_000)]
    life.fire("wait", "w")
    assert life.queue == {"w@/"}
    assert nothing(fire_timer(life.plan, life.state, timer, NOW + 6_000))
    life.ok("w")
    assert nothing(fire_timer(life.plan, life.state, timer, NOW + 6_000))


def test_a_retry_timer_of_an_earlier_attempt_means_nothing() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1, "jitter": False})))
    life.fail("x")
    stale = life.timer("retry", "x")
    life.fire("retry", "x")
    life.fail("x")

    assert nothing(fire_timer(life.plan, life.state, stale, NOW + 10**6))


def test_a_timer_of_a_token_that_waits_for_a_signal_means_nothing() -> None:
    life = Life(plan("start -> w", w=node("wait", {"resume": "signal"})))
    life.sleep("w", signal="go")

    assert nothing(fire_timer(life.plan, life.state, Timer("wait", life.plan.index["w"]), NOW + 10**6))


def test_a_timer_of_an_item_that_has_ended_means_nothing() -> None:
    life = Life(plan(FAN, s=split(), g=gather()))

    assert nothing(fire_timer(life.plan, life.state, Timer("wait", life.plan.index["x"], (1, 0)), NOW))


def test_the_finish_timer_tells_the_end_again() -> None:
    life = Life(plan("start -> a"))
    assert fire_timer(life.plan, life.state, Timer("finish"), NOW).finish is None
    life.ok("a")

    assert fire_timer(life.plan, life.state, Timer("finish"), NOW).finish == FinishExecution("completed")


def test_after_the_end_no_timer_means_anything() -> None:
    life = Life(plan("start -> a", settings={"timeout": 1}))
    life.ok("a")
    end_execution(life.state, ExecutionEnded(NOW, "completed"))

    for timer in (Timer("finish"), Timer("deadline"), Timer("join", 1)):
        assert nothing(fire_timer(life.plan, life.state, timer, NOW + 10**6))


def test_a_deadline_that_comes_after_a_halt_changes_nothing() -> None:
    life = Life(plan("start -> a", settings={"timeout": 1}))
    life.fail("a")

    assert nothing(life.fire("deadline"))
    assert life.state.finish is not None
    assert life.state.finish.status == "halted"


def test_every_timer_that_a_state_needs() -> None:
    life = Life(
        plan(
            """start -> a -> m, start -> b -> m, start -> w, start -> r,
            start -> s -> x -> q, s -> y -> q, q -> g""",
            settings={"timeout": 60},
            m=race({"timeout": 9}),
            w=node("wait", {"amount": 5}),
            r=node(retry={"max_attempts": 2, "initial_delay": 2, "jitter": False}),
            s=split(),
            q=race({"timeout": 4}),
            g=gather({"timeout": 30}),
        )
    )
    life.sleep("w", NOW + 5_000)
    life.fail("r")
    life.fan("s", 2)
    life.ok("x@/s:0", "q@/s:0")

    assert dict(timers_of(life.plan, life.state)) == life.timers
    assert {(each.kind, due - NOW) for each, due in timers_of(life.plan, life.state)} == {
        ("deadline", 60_000),
        ("join", 9_000),
        ("wait", 5_000),
        ("retry", 2_000),
        ("join", 4_000),
        ("join", 30_000),
    }
    life.state.paused_at = NOW
    assert {each.kind for each, _ in timers_of(life.plan, life.state)} == {"wait", "retry"}


def test_a_state_that_has_a_finish_keeps_its_timer() -> None:
    life = Life(plan("start -> a"))
    life.ok("a")

    assert timers_of(life.plan, life.state) == [(Timer("finish"), 0)]


def test_an_expired_join_with_a_token_of_its_own_is_done() -> None:
    life = Life(plan(JOIN, m=race({"timeout": 5})))
    life.ok("a")

    assert (
        claim_verdict(life.plan, life.state, Token(life.plan.index["m"], fate=TokenPurpose.EXPIRE)) == "done"
    )
    assert nothing(fire_timer(life.plan, State(), Timer("join", 1), NOW))
