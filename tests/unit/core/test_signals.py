"""Signals: stored until a token takes them, taken once, by the token that has waited longest."""

from __future__ import annotations

from rune.core.execution.control import deliver_signal, end_execution
from rune.core.execution.fact import EffectStarted, ExecutionEnded, NodeSuspended, SignalReceived, fact_key
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Suspend
from rune.core.execution.retry import SIGNAL_MISMATCH
from rune.core.execution.state import may_run
from rune.core.execution.step import step
from rune.core.execution.token import TokenPurpose, parse_path
from rune.core.limits import Limits
from tests.support.plans import NOW, ExecutionDriver, aggregator, conditional, node, plan, race, split

CHAIN = "start -> a -> b"


def folded(execution: ExecutionDriver) -> set[str]:
    """The tokens that a fold of the facts emits, with their signal."""
    _, applied = fold(execution.plan, execution.facts, execution.now)
    return {f"{execution.name(*token.key)} {token.signal or ''}".strip() for token in applied.emitted}


def test_signal_resumes_waiting_token() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.suspend("a", signal="go")
    assert execution.queue == set()

    execution.signal("go", "s1")

    assert (execution.token("a").signal, execution.token("a").resumed) == ("s1", True)
    assert folded(execution) == {"a@/ s1"}
    execution.ok("a")
    assert execution.result("a").signal == "s1"
    assert execution.queue == {"b@/"}


def test_signal_with_other_name_resumes_no_token() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.suspend("a", signal="go")

    execution.signal("stop")

    assert execution.queue == set()
    assert folded(execution) == set()


def test_early_signal_is_kept_until_token_waits() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.signal("other", "s0")
    execution.signal("go", "s1")
    execution.signal("go", "s2")

    execution.suspend("a", signal="go")

    assert execution.token("a").signal == "s1"
    assert [each.id for each in execution.state.pending_signals] == ["s0", "s2"]
    assert folded(execution) == {"a@/ s1"}


def test_signal_resumes_longest_waiting_token() -> None:
    execution = ExecutionDriver(plan("start -> a, start -> b"))
    execution.suspend("b", signal="go")
    execution.now += 5
    execution.suspend("a", signal="go")

    execution.signal("go", "s1")

    assert execution.queue == {"b@/"}
    assert folded(execution) == {"b@/ s1"}
    execution.ok("b")
    execution.signal("go", "s2")
    assert execution.token("a").signal == "s2"
    assert folded(execution) == {"a@/ s2"}


def test_signal_with_path_resumes_only_that_item() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 3)
    for item in range(3):
        execution.suspend(f"x@/s:{item}", signal="go")
    path = parse_path("s:1", execution.plan.index)

    execution.signal("go", "s1", path=path)

    assert execution.queue == {"x@/s:1"}
    assert folded(execution) == {"x@/s:1 s1"}
    execution.signal("go", "s2", path=path)
    assert execution.queue == {"x@/s:1"}, "no token of the item waits any more"


def test_early_signal_with_path_is_not_taken_by_other_item() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split(), g=aggregator()))
    execution.fan_out("s", 2)
    execution.signal("go", "s1", path=parse_path("s:1", execution.plan.index))

    execution.suspend("x@/s:0", signal="go")
    execution.suspend("x@/s:1", signal="go")

    assert execution.queue == {"x@/s:1"}


def test_timed_signal_wait_resumes_at_its_time_without_signal() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.suspend("a", NOW + 1_000, "go")

    execution.fire("wait", "a")
    execution.signal("go", "s1")

    assert (execution.token("a").fate, execution.token("a").signal) == (TokenPurpose.RUN, None)
    assert [each.id for each in execution.state.pending_signals] == ["s1"]


def test_node_timeout_fails_signal_wait() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=2)))
    execution.suspend("a", signal="go")
    assert execution.due("wait", "a") == 2_000

    execution.fire("wait", "a")

    assert execution.result("a").failure is not None
    assert (execution.result("a").failure.code, execution.finish is not None) == ("TIMEOUT", True)  # type: ignore[union-attr]


def test_signal_before_timeout_disarms_it() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=2)))
    execution.suspend("a", signal="go")

    execution.signal("go")

    assert execution.timers == {}
    assert execution.token("a").fate is TokenPurpose.RUN


def test_earlier_of_wait_and_timeout_is_armed() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=60)))
    execution.suspend("a", NOW + 5_000, "go")
    assert execution.due("wait", "a") == 5_000

    execution.fire("wait", "a", at=NOW + 4_000)
    assert execution.queue == set()
    execution.fire("wait", "a")
    assert execution.token("a").fate is TokenPurpose.RUN


def test_node_timeout_before_wait_time_marks_token_overdue() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=2)))
    execution.auto_decide = False
    execution.suspend("a", NOW + 5_000, "go")
    assert execution.due("wait", "a") == 2_000

    execution.fire("wait", "a")
    assert execution.token("a").fate is TokenPurpose.OVERDUE


def test_timed_out_signal_wait_is_retried() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=2, retry={"max_attempts": 2, "initial_delay": 1})))
    execution.suspend("a", signal="go")
    execution.fire("wait", "a")
    execution.fire("retry", "a")

    assert (execution.token("a").fate, execution.token("a").attempt) == (TokenPurpose.RUN, 2)
    execution.suspend("a", signal="go")
    execution.signal("go", "s1")
    execution.fail("a")
    assert execution.facts[-1].signal == "s1"  # type: ignore[union-attr]


def test_node_that_does_not_accept_its_signal_waits_for_the_next_one() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.signal("go", "s1")
    execution.signal("go", "s2")
    execution.suspend("a", signal="go")
    assert execution.token("a").signal == "s1"

    execution.fail("a", code=SIGNAL_MISMATCH)
    execution.fire("retry", "a")
    execution.suspend("a", signal="go")

    assert (execution.token("a").signal, execution.token("a").attempt) == ("s2", 2)
    assert folded(execution) == {"a@/ s2"}
    execution.ok("a")
    assert [execution.facts[-1].signal, execution.queue] == ["s2", {"b@/"}]  # type: ignore[union-attr]


def test_node_that_took_no_signal_fails_with_any_code() -> None:
    execution = ExecutionDriver(plan(CHAIN))

    execution.fail("a", code=SIGNAL_MISMATCH)

    assert execution.result("a").status == "failed"


def test_signal_of_failed_attempt_is_not_reused() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(retry={"max_attempts": 2, "initial_delay": 1})))
    execution.suspend("a", signal="go")
    execution.signal("go", "s1")
    execution.fail("a")
    execution.fire("retry", "a")

    execution.suspend("a", signal="go")

    assert execution.queue == set()
    assert folded(execution) == set()


def test_signal_during_pause_parks_token_until_resume() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.suspend("a", signal="go")
    execution.pause()

    execution.signal("go", "s1")
    assert execution.queue == set()
    assert folded(execution) == set()

    execution.resume()
    assert execution.token("a").signal == "s1"


def test_lost_race_emits_tokens_waiting_for_signal() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=race({"cancel_losers": True})))
    execution.suspend("a", signal="go")
    execution.ok("b")
    execution.ok("m")

    assert "a@/" in execution.queue
    assert execution.state.waiting_for_signal == {}


def test_suspend_or_retry_after_lost_race_is_emitted_at_once() -> None:
    retry = {"max_attempts": 2, "initial_delay": 60}
    execution = ExecutionDriver(
        plan(
            "start -> a -> m, start -> b -> m, start -> c -> m",
            m=race({"cancel_losers": True}),
            c=node(retry=retry),
        )
    )
    execution.ok("b")
    execution.ok("m")

    execution.suspend("a", signal="go")
    execution.fail("c")

    assert {"a@/", "c@/"} <= execution.queue
    assert [each.kind for each in execution.timers] == []


def test_signal_after_end_is_ignored() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.suspend("a", signal="go")
    end_execution(execution.state, ExecutionEnded(NOW, "cancelled"))

    applied = deliver_signal(execution.plan, execution.state, SignalReceived(NOW, "s1", "go"))

    assert (applied.fresh, applied.emitted) == (False, [])


def test_fact_keys_of_signal_and_effect_started() -> None:
    assert fact_key(SignalReceived(NOW, "s1", "go")) == ("signal", "s1")
    assert fact_key(EffectStarted(1, (), NOW, 2)) == ("begun", 1, (), 2)


def test_effect_started_does_not_change_folded_state() -> None:
    execution = ExecutionDriver(plan(CHAIN, a="act"))

    state, _ = fold(
        execution.plan, [*execution.facts, EffectStarted(execution.plan.index["a"], (), NOW, 1)], NOW
    )

    assert state == fold(execution.plan, execution.facts, NOW)[0]


def test_timed_suspension_has_no_deadline() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node(timeout=2)))

    fact = step(execution.plan, execution.token("a"), Suspend(NOW + 9_000), NOW).fact

    assert isinstance(fact, NodeSuspended)
    assert fact.deadline is None


def test_parse_path_accepts_written_paths_only() -> None:
    index = {"users": 3, "a:b": 7}
    assert parse_path("users:5", index) == (3, 5)
    assert parse_path("/users:5/a:b:2", index) == (3, 5, 7, 2)
    for text in ("", "users", "users:x", "users:-1", "orders:1", "users:²"):
        assert parse_path(text, index) is None


def may(execution: ExecutionDriver, name: str) -> bool:
    return may_run(execution.plan, execution.state, execution.plan.index[name])


def test_node_may_run_until_it_has_ended() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    assert may(execution, "b")

    execution.suspend("a", signal="go")
    assert may(execution, "a")
    execution.signal("go", "s1")
    execution.ok("a")

    assert not may(execution, "a")
    assert may(execution, "b")


def test_skipped_node_may_not_run() -> None:
    chains = "start -> c, c -true-> a, c -false-> s -> x -> g"
    execution = ExecutionDriver(plan(chains, c=conditional(), s=split(), g=aggregator()))
    assert may(execution, "x")

    execution.ok("c", outlet="true")

    assert may(execution, "a")
    assert not may(execution, "x")


def test_node_in_split_may_run_until_all_items_have_ended() -> None:
    chains = "start -> s -> x -> g, start -> t -> y -> h"
    nodes = {"s": split(), "g": aggregator(), "t": split(), "h": aggregator()}
    execution = ExecutionDriver(plan(chains, **nodes), limits=Limits(window=1))
    assert may(execution, "x")

    execution.fan_out("s", 2)
    execution.fan_out("t", 2)
    execution.ok("x@/s:0")
    assert may(execution, "x")
    execution.ok("x@/s:1")

    assert not may(execution, "x")
    assert may(execution, "y")


def test_node_may_run_in_items_that_have_not_started() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> y -> g", s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.fan_out("s", 2)

    execution.ok("x@/s:0")

    assert may(execution, "x")


def test_node_that_only_leads_to_a_lost_race_may_not_run() -> None:
    execution = ExecutionDriver(
        plan("start -> a -> m, start -> b -> m, m -> c", m=race({"cancel_losers": True}))
    )
    execution.ok("b")
    execution.ok("m")

    assert not may(execution, "a")
    assert may(execution, "c")


def test_timeout_of_child_says_that_the_child_did_not_end() -> None:
    execution = ExecutionDriver(plan(CHAIN, a=node("workflow", {"workflow": "w"}, timeout=2)))
    execution.suspend("a", signal="child:x")

    execution.fire("wait", "a")

    failure = execution.result("a").failure
    assert failure is not None
    assert (failure.code, failure.message) == (
        "TIMEOUT",
        "the child did not end within the timeout of the node",
    )
