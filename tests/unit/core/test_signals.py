"""Signals: kept until somebody takes them, taken once, by whoever has waited longest."""

from __future__ import annotations

from rune.core.execution.control import deliver_signal, end_execution
from rune.core.execution.fact import EffectStarted, ExecutionEnded, NodeSuspended, SignalReceived, fact_key
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Suspend
from rune.core.execution.step import step
from rune.core.execution.token import TokenPurpose, parse_path
from tests.unit.core.plans import NOW, Life, gather, node, plan, race, split

CHAIN = "start -> a -> b"


def folded(life: Life) -> set[str]:
    """What a fold of the facts would send."""
    _, applied = fold(life.plan, life.facts, life.now)
    return {f"{life.name(*token.key)} {token.signal or ''}".strip() for token in applied.emitted}


def test_a_signal_resumes_the_token_that_waits_for_it() -> None:
    life = Life(plan(CHAIN))
    life.sleep("a", signal="go")
    assert life.queue == set()

    life.say("go", "s1")

    assert (life.token("a").signal, life.token("a").resumed) == ("s1", True)
    assert folded(life) == {"a@/ s1"}
    life.ok("a")
    assert life.result("a").signal == "s1"
    assert life.queue == {"b@/"}


def test_another_name_resumes_nobody() -> None:
    life = Life(plan(CHAIN))
    life.sleep("a", signal="go")

    life.say("stop")

    assert life.queue == set()
    assert folded(life) == set()


def test_a_signal_that_comes_first_is_kept() -> None:
    life = Life(plan(CHAIN))
    life.say("other", "s0")
    life.say("go", "s1")
    life.say("go", "s2")

    life.sleep("a", signal="go")

    assert life.token("a").signal == "s1"
    assert [each.id for each in life.state.pending_signals] == ["s0", "s2"]
    assert folded(life) == {"a@/ s1"}


def test_of_several_that_wait_the_oldest_is_resumed() -> None:
    life = Life(plan("start -> a, start -> b"))
    life.sleep("b", signal="go")
    life.now += 5
    life.sleep("a", signal="go")

    life.say("go", "s1")

    assert life.queue == {"b@/"}
    assert folded(life) == {"b@/ s1"}
    life.ok("b")
    life.say("go", "s2")
    assert life.token("a").signal == "s2"
    assert folded(life) == {"a@/ s2"}


def test_a_signal_for_one_item_resumes_only_that_one() -> None:
    life = Life(plan("start -> s -> x -> g", s=split(), g=gather()))
    life.fan("s", 3)
    for item in range(3):
        life.sleep(f"x@/s:{item}", signal="go")
    path = parse_path("s:1", life.plan.index)

    life.say("go", "s1", path=path)

    assert life.queue == {"x@/s:1"}
    assert folded(life) == {"x@/s:1 s1"}
    life.say("go", "s2", path=path)
    assert life.queue == {"x@/s:1"}, "nobody waits there any more"


def test_an_early_signal_for_another_item_is_left_alone() -> None:
    life = Life(plan("start -> s -> x -> g", s=split(), g=gather()))
    life.fan("s", 2)
    life.say("go", "s1", path=parse_path("s:1", life.plan.index))

    life.sleep("x@/s:0", signal="go")
    life.sleep("x@/s:1", signal="go")

    assert life.queue == {"x@/s:1"}


def test_whichever_comes_first() -> None:
    """A node may wait for a signal until a time of its own: then it is resumed without one."""
    life = Life(plan(CHAIN))
    life.sleep("a", NOW + 1_000, "go")

    life.fire("wait", "a")
    life.say("go", "s1")

    assert (life.token("a").fate, life.token("a").signal) == (TokenPurpose.RUN, None)
    assert [each.id for each in life.state.pending_signals] == ["s1"]


def test_the_timeout_of_a_node_ends_its_wait_for_a_signal() -> None:
    life = Life(plan(CHAIN, a=node(timeout=2)))
    life.sleep("a", signal="go")
    assert life.due("wait", "a") == 2_000

    life.fire("wait", "a")

    assert life.result("a").failure is not None
    assert (life.result("a").failure.code, life.finish is not None) == ("TIMEOUT", True)  # type: ignore[union-attr]


def test_a_signal_in_time_disarms_the_timeout() -> None:
    life = Life(plan(CHAIN, a=node(timeout=2)))
    life.sleep("a", signal="go")

    life.say("go")

    assert life.timers == {}
    assert life.token("a").fate is TokenPurpose.RUN


def test_what_is_sooner_is_armed_and_an_early_timer_waits_on() -> None:
    life = Life(plan(CHAIN, a=node(timeout=60)))
    life.sleep("a", NOW + 5_000, "go")
    assert life.due("wait", "a") == 5_000

    life.fire("wait", "a", at=NOW + 4_000)
    assert life.queue == set()
    life.fire("wait", "a")
    assert life.token("a").fate is TokenPurpose.RUN


def test_a_deadline_before_the_time_of_the_node_wins() -> None:
    life = Life(plan(CHAIN, a=node(timeout=2)))
    life.auto = False
    life.sleep("a", NOW + 5_000, "go")
    assert life.due("wait", "a") == 2_000

    life.fire("wait", "a")
    assert life.token("a").fate is TokenPurpose.OVERDUE


def test_a_wait_that_timed_out_may_be_tried_again() -> None:
    life = Life(plan(CHAIN, a=node(timeout=2, retry={"max_attempts": 2, "initial_delay": 1})))
    life.sleep("a", signal="go")
    life.fire("wait", "a")
    life.fire("retry", "a")

    assert (life.token("a").fate, life.token("a").attempt) == (TokenPurpose.RUN, 2)
    life.sleep("a", signal="go")
    life.say("go", "s1")
    life.fail("a")
    assert life.facts[-1].signal == "s1"  # type: ignore[union-attr]


def test_a_signal_that_a_failed_try_took_is_not_taken_again() -> None:
    life = Life(plan(CHAIN, a=node(retry={"max_attempts": 2, "initial_delay": 1})))
    life.sleep("a", signal="go")
    life.say("go", "s1")
    life.fail("a")
    life.fire("retry", "a")

    life.sleep("a", signal="go")

    assert life.queue == set()
    assert folded(life) == set()


def test_in_a_pause_a_signal_is_heard_and_its_token_parked() -> None:
    life = Life(plan(CHAIN))
    life.sleep("a", signal="go")
    life.pause()

    life.say("go", "s1")
    assert life.queue == set()
    assert folded(life) == set()

    life.resume()
    assert life.token("a").signal == "s1"


def test_a_lost_race_wakes_those_who_wait_for_signals() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=race({"cancel_losers": True})))
    life.sleep("a", signal="go")
    life.ok("b")
    life.ok("m")

    assert "a@/" in life.queue
    assert life.state.waiting_for_signal == {}


def test_a_race_that_was_lost_while_the_node_ran_leaves_nothing_to_wait_for() -> None:
    retry = {"max_attempts": 2, "initial_delay": 60}
    life = Life(
        plan(
            "start -> a -> m, start -> b -> m, start -> c -> m",
            m=race({"cancel_losers": True}),
            c=node(retry=retry),
        )
    )
    life.ok("b")
    life.ok("m")

    life.sleep("a", signal="go")
    life.fail("c")

    assert {"a@/", "c@/"} <= life.queue
    assert [each.kind for each in life.timers] == []


def test_behind_the_end_nothing_is_heard() -> None:
    life = Life(plan(CHAIN))
    life.sleep("a", signal="go")
    end_execution(life.state, ExecutionEnded(NOW, "cancelled"))

    applied = deliver_signal(life.plan, life.state, SignalReceived(NOW, "s1", "go"))

    assert (applied.fresh, applied.emitted) == (False, [])


def test_keys() -> None:
    assert fact_key(SignalReceived(NOW, "s1", "go")) == ("signal", "s1")
    assert fact_key(EffectStarted(1, (), NOW, 2)) == ("begun", 1, (), 2)


def test_that_an_effect_has_begun_changes_no_state() -> None:
    life = Life(plan(CHAIN, a="act"))

    state, _ = fold(life.plan, [*life.facts, EffectStarted(life.plan.index["a"], (), NOW, 1)], NOW)

    assert state == fold(life.plan, life.facts, NOW)[0]


def test_only_a_signal_has_a_deadline() -> None:
    life = Life(plan(CHAIN, a=node(timeout=2)))

    fact = step(life.plan, life.token("a"), Suspend(NOW + 9_000), NOW).fact

    assert isinstance(fact, NodeSuspended)
    assert fact.deadline is None


def test_paths_are_read_as_they_are_written() -> None:
    index = {"users": 3, "a:b": 7}
    assert parse_path("users:5", index) == (3, 5)
    assert parse_path("/users:5/a:b:2", index) == (3, 5, 7, 2)
    for text in ("", "users", "users:x", "users:-1", "orders:1", "users:²"):
        assert parse_path(text, index) is None
