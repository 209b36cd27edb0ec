"""Pause, resume, the end of an execution, and the verdict on claims."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rune.core.execution.control import change_pause, claim_verdict, end_execution, outcome_of
from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    TokenFact,
)
from rune.core.execution.outcome import Error, Output
from rune.core.execution.step import step
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from tests.support.plans import NOW, ExecutionDriver, aggregator, merge, node, plan, race, split

CHAIN = "start -> a -> b"


def verdict(execution: ExecutionDriver, token: Token) -> str:
    return claim_verdict(execution.plan, execution.state, token, execution.now)


def test_claim_of_live_token_runs_and_of_ended_token_is_done() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    token = execution.token("a")
    assert verdict(execution, token) == "run"
    execution.ok("a")

    assert verdict(execution, token) == "done"
    assert verdict(execution, execution.token("b")) == "run"


def test_claim_of_token_not_emitted_is_unknown() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g -> y", s=split({"max_in_flight": 1}), g=aggregator())
    )
    execution.fan_out("s", 2)
    token = execution.token("x@/s:0")
    execution.ok("x@/s:0")

    assert verdict(execution, Token(execution.plan.index["y"])) == "unknown"
    assert verdict(execution, token) == "done"
    assert verdict(execution, Token(token.node, (1, 5))) == "unknown"


def test_claim_of_earlier_attempt_or_suspended_token_is_done() -> None:
    execution = ExecutionDriver(plan("start -> x", x=node(retry={"max_attempts": 3, "initial_delay": 1})))
    first = execution.token("x")
    execution.fail("x")
    assert verdict(execution, first) == "done"
    execution.fire("retry", "x")

    assert verdict(execution, first) == "done"
    second = execution.token("x")
    assert verdict(execution, second) == "run"
    execution.suspend("x", NOW + 10_000)
    execution.fire("wait", "x")
    assert verdict(execution, second) == "done"
    assert verdict(execution, execution.token("x")) == "run"


def test_claim_after_finish_is_void() -> None:
    execution = ExecutionDriver(plan("start -> a, start -> b"))
    execution.fail("a")

    assert verdict(execution, execution.token("b")) == "void"


def test_claim_in_cancelled_region_cancels_runs_but_not_dispatch() -> None:
    chains = "start -> a -> m, start -> s -> x -> g -> m, m -> z"
    execution = ExecutionDriver(
        plan(chains, m=race({"cancel_losers": True}), s=split({"max_in_flight": 400}), g=aggregator())
    )
    execution.auto_decide = False
    execution.fan_out("s", 500)
    item, dispatch = execution.token("x@/s:3"), execution.token("s")
    assert (verdict(execution, item), verdict(execution, dispatch)) == ("run", "run")

    execution.ok("a", "m")

    assert (verdict(execution, item), verdict(execution, dispatch)) == ("cancelled", "run")
    assert verdict(execution, execution.token("z")) == "run"


def test_pause_parks_emitted_and_claimed_tokens() -> None:
    execution = ExecutionDriver(plan("start -> a -> c, start -> b"))
    execution.pause()
    applied = execution.ok("a")

    assert applied.emitted == []
    assert execution.live("c").parked
    assert verdict(execution, execution.token("b")) == "parked"
    assert execution.live("b").parked
    execution.tokens.clear()
    execution.resume()
    assert execution.queue == {"b@/", "c@/"}
    assert verdict(execution, execution.token("c")) == "run"
    execution.check_fold()


def test_parked_token_runs_once_after_resume() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    token = execution.token("a")
    execution.pause()
    assert verdict(execution, token) == "parked"
    execution.resume()

    assert verdict(execution, token) == "run"
    execution.ok("a")
    assert verdict(execution, token) == "done"


def test_running_node_may_end_execution_during_pause() -> None:
    execution = ExecutionDriver(plan("start -> a"))
    execution.pause()

    execution.ok("a")

    assert execution.finish == FinishExecution("completed")


def test_items_started_during_pause_are_parked() -> None:
    execution = ExecutionDriver(plan("start -> s -> x -> g", s=split({"max_in_flight": 1}), g=aggregator()))
    execution.fan_out("s", 2)
    execution.pause()
    execution.ok("x@/s:0")

    assert execution.queue == set()
    execution.resume()
    assert execution.queue == {"x@/s:1"}


def test_join_timeout_during_pause_is_rearmed_on_resume() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    execution.auto_decide = False
    execution.ok("a")
    execution.fire("join", "m")
    expired = execution.tokens.pop("m@/")
    execution.pause()

    assert verdict(execution, expired) == "done"
    execution.now += 5_000
    execution.resume()
    assert execution.due("join", "m") == 305_000


def test_duplicate_pause_or_resume_changes_nothing() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.pause()
    execution.now += 500
    execution.resume()
    before = copy.deepcopy(execution.state)

    for fact in (PauseChanged(NOW + 900, 1, True), PauseChanged(NOW + 900, 2, False)):
        assert not change_pause(execution.plan, execution.state, fact).fresh

    assert execution.state == before
    assert execution.state.pauses == [(NOW, NOW + 500)]


def test_second_pause_and_second_resume_have_no_effect() -> None:
    execution = ExecutionDriver(plan(CHAIN))
    execution.pause()
    execution.now += 500
    execution.pause()
    assert execution.state.paused_at == NOW
    execution.resume()
    execution.now += 500
    execution.resume()

    assert execution.state.pauses == [(NOW, NOW + 500)]


@pytest.mark.parametrize("status", ["completed", "failed", "halted", "cancelled"])
def test_nothing_is_applied_after_execution_ended(status: Any) -> None:
    execution = ExecutionDriver(plan(CHAIN))
    token = execution.token("a")
    error = Error("E", "no")

    assert end_execution(execution.state, ExecutionEnded(NOW, status, error)).fresh
    assert not end_execution(execution.state, ExecutionEnded(NOW, status, error)).fresh

    assert execution.state.finish == FinishExecution(status, error)
    assert verdict(execution, token) == "void"
    assert verdict(execution, Token(token.node, fate=TokenPurpose.EXPIRE)) == "void"
    duplicate = apply(execution.plan, execution.state, step(execution.plan, token, Output(), NOW))
    assert (duplicate.fresh, duplicate.known, duplicate.emitted, duplicate.finish) == (False, True, [], None)


def test_resume_rearms_join_timers() -> None:
    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=race({"timeout": 5})))
    execution.pause()
    execution.now += 1_000

    applied = execution.resume()

    assert applied.armed == [(Timer("join", execution.plan.index["m"]), NOW + 6_000)]


@pytest.mark.parametrize(
    ("token", "decided"),
    [
        (Token(1), "first attempt"),
        (Token(1, attempt=2), "suspension"),
        (Token(1, attempt=2, resumed=True), None),
        (Token(1, attempt=3), None),
    ],
)
def test_outcome_of_attempt_is_found(token: Token, decided: str | None) -> None:
    facts: dict[str, TokenFact] = {
        "first attempt": AttemptFailed(1, (), NOW, 1, Error("E", "m")),
        "suspension": NodeSuspended(1, (), NOW, 2),
    }
    rows = list(facts.values())
    assert outcome_of(rows, token) is (None if decided is None else facts[decided])
    result = NodeResult(1, (), NOW, "ok")
    assert outcome_of([*rows[1:], result], Token(1, attempt=3)) is result
