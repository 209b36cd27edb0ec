"""Pause, resume, the end, and whether a token may run."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rune.core.execution.control import change_pause, claim_verdict, end_execution
from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import ExecutionEnded, PauseChanged
from rune.core.execution.outcome import Error, Output
from rune.core.execution.step import step
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from tests.unit.core.plans import NOW, Life, gather, merge, node, plan, race, split

CHAIN = "start -> a -> b"


def verdict(life: Life, token: Token) -> str:
    return claim_verdict(life.plan, life.state, token)


def test_a_token_runs_and_then_is_done() -> None:
    life = Life(plan(CHAIN))
    token = life.token("a")
    assert verdict(life, token) == "run"
    life.ok("a")

    assert verdict(life, token) == "done"
    assert verdict(life, life.token("b")) == "run"


def test_a_token_that_the_state_does_not_know() -> None:
    life = Life(plan("start -> s -> x -> g -> y", s=split({"max_in_flight": 1}), g=gather()))
    life.fan("s", 2)
    token = life.token("x@/s:0")
    life.ok("x@/s:0")

    assert verdict(life, Token(life.plan.index["y"])) == "unknown"
    assert verdict(life, token) == "done"
    assert verdict(life, Token(token.node, (1, 5))) == "unknown"


def test_a_hint_of_another_attempt_or_of_a_sleeping_token_is_done() -> None:
    life = Life(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1})))
    first = life.token("x")
    life.fail("x")
    assert verdict(life, first) == "done"
    life.fire("retry", "x")

    assert verdict(life, first) == "done"
    second = life.token("x")
    assert verdict(life, second) == "run"
    life.sleep("x", NOW + 10_000)
    life.fire("wait", "x")
    assert verdict(life, second) == "done"
    assert verdict(life, life.token("x")) == "run"


def test_a_finish_makes_everything_void() -> None:
    life = Life(plan("start -> a, start -> b"))
    life.fail("a")

    assert verdict(life, life.token("b")) == "void"


def test_a_cancelled_region_cancels_what_would_run_but_lets_rules_go_on() -> None:
    chains = "start -> a -> m, start -> s -> x -> g -> m, m -> z"
    life = Life(plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 400}), g=gather()))
    life.auto = False
    life.fan("s", 500)
    item, dispatch = life.token("x@/s:3"), life.token("s")
    assert (verdict(life, item), verdict(life, dispatch)) == ("run", "run")

    life.ok("a", "m")

    assert (verdict(life, item), verdict(life, dispatch)) == ("cancelled", "run")
    assert verdict(life, life.token("z")) == "run"


def test_a_pause_parks_what_commits_emit_and_what_is_touched() -> None:
    life = Life(plan("start -> a -> c, start -> b"))
    life.pause()
    applied = life.ok("a")

    assert applied.emitted == []
    assert life.live("c").parked
    assert verdict(life, life.token("b")) == "parked"
    assert life.live("b").parked
    life.tokens.clear()
    life.resume()
    assert life.queue == {"b@/", "c@/"}
    assert verdict(life, life.token("c")) == "run"
    life.check_fold()


def test_a_token_parked_before_the_pause_is_not_run_twice() -> None:
    life = Life(plan(CHAIN))
    token = life.token("a")
    life.pause()
    assert verdict(life, token) == "parked"
    life.resume()

    assert verdict(life, token) == "run"
    life.ok("a")
    assert verdict(life, token) == "done"


def test_a_running_node_finishes_in_a_pause_and_may_end_the_execution() -> None:
    life = Life(plan("start -> a"))
    life.pause()

    life.ok("a")

    assert life.finish == FinishExecution("completed")


def test_items_started_in_a_pause_are_parked() -> None:
    life = Life(plan("start -> s -> x -> g", s=split({"max_in_flight": 1}), g=gather()))
    life.fan("s", 2)
    life.pause()
    life.ok("x@/s:0")

    assert life.queue == set()
    life.resume()
    assert life.queue == {"x@/s:1"}


def test_a_join_that_expires_in_a_pause_waits_for_the_resume() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    life.auto = False
    life.ok("a")
    life.fire("join", "m")
    expired = life.tokens.pop("m@/")
    life.pause()

    assert verdict(life, expired) == "done"
    life.now += 5_000
    life.resume()
    assert life.due("join", "m") == 305_000


def test_a_twin_of_a_control_changes_nothing() -> None:
    life = Life(plan(CHAIN))
    life.pause()
    life.now += 500
    life.resume()
    before = copy.deepcopy(life.state)

    for fact in (PauseChanged(NOW + 900, 1, True), PauseChanged(NOW + 900, 2, False)):
        assert not change_pause(life.plan, life.state, fact).fresh

    assert life.state == before
    assert life.state.pauses == [(NOW, NOW + 500)]


def test_a_second_pause_keeps_the_first_moment_and_a_second_resume_has_no_effect() -> None:
    life = Life(plan(CHAIN))
    life.pause()
    life.now += 500
    life.pause()
    assert life.state.paused_at == NOW
    life.resume()
    life.now += 500
    life.resume()

    assert life.state.pauses == [(NOW, NOW + 500)]


@pytest.mark.parametrize("status", ["completed", "failed", "halted", "cancelled"])
def test_terminal_is_terminal(status: Any) -> None:
    life = Life(plan(CHAIN))
    token = life.token("a")
    error = Error("E", "no")

    assert end_execution(life.state, ExecutionEnded(NOW, status, error)).fresh
    assert not end_execution(life.state, ExecutionEnded(NOW, status, error)).fresh

    assert life.state.finish == FinishExecution(status, error)
    assert verdict(life, token) == "void"
    assert verdict(life, Token(token.node, fate=TokenPurpose.EXPIRE)) == "void"
    late = apply(life.plan, life.state, step(life.plan, token, Output(), NOW))
    assert (late.fresh, late.known, late.emitted, late.finish) == (False, True, [], None)


def test_a_resume_arms_what_the_pause_dropped() -> None:
    life = Life(plan("start -> a -> m, start -> b -> m", m=race({"timeout": 5})))
    life.pause()
    life.now += 1_000

    applied = life.resume()

    assert applied.armed == [(Timer("join", life.plan.index["m"]), NOW + 6_000)]
