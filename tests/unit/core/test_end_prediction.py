"""Prediction of the end or the sleep of an execution from decisions that are not applied yet."""

from __future__ import annotations

import pytest

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.inline_run import predict_end, predict_sleep
from rune.core.execution.outcome import Error, Failure, Outcome, Output, Suspend
from rune.core.execution.state import State
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.core.execution.transition import apply, start_execution
from rune.core.plan.model import Plan
from tests.support.plans import plan as planned

NOW = 1_000


def start(plan: Plan) -> tuple[State, list[Token]]:
    state = State()
    return state, start_execution(plan, state, NOW).emitted


def decide(plan: Plan, token: Token, outcome: Outcome) -> Decision:
    return step(plan, token, outcome, NOW)


def test_last_result_of_chain_predicts_end() -> None:
    plan = planned("start -> a")
    state, (token,) = start(plan)
    decision = decide(plan, token, Output(1))

    assert predict_end(state, [decision]) == FinishExecution("completed")
    assert apply(plan, state, decision).finish == FinishExecution("completed")


def test_run_that_decides_all_emitted_tokens_predicts_end() -> None:
    plan = planned("start -> a -> b")
    state, (token,) = start(plan)
    first = decide(plan, token, Output(1))
    second = decide(plan, Token(plan.index["b"]), Output(2))

    assert predict_end(state, [first]) is None
    assert predict_end(state, [first, second]) == FinishExecution("completed")


def test_other_open_token_prevents_end_prediction() -> None:
    plan = planned("start -> a, start -> b")
    state, tokens = start(plan)

    assert predict_end(state, [decide(plan, tokens[0], Output(1))]) is None


def test_failed_finished_or_unknown_state_predicts_no_end() -> None:
    plan = planned("start -> a")
    state, (token,) = start(plan)
    decision = decide(plan, token, Output(1))
    failed = State(scopes=state.scopes, failures=1)
    ending = State(scopes=state.scopes, finish=FinishExecution("completed"))

    assert predict_end(failed, [decision]) is None
    assert predict_end(ending, [decision]) is None
    assert predict_end(State(), [decision]) is None


def test_unknown_token_predicts_no_end() -> None:
    plan = planned("start -> a -> b")
    state, _ = start(plan)

    assert predict_end(state, [decide(plan, Token(plan.index["b"]), Output(1))]) is None


def test_failure_predicts_no_end() -> None:
    plan = planned("start -> a")
    state, (token,) = start(plan)

    assert predict_end(state, [decide(plan, token, Failure(Error("X", "x")))]) is None


def test_suspension_of_only_token_predicts_sleep() -> None:
    plan = planned("start -> a -> b")
    state, (token,) = start(plan)
    first = decide(plan, token, Output(1))
    suspension = decide(plan, Token(plan.index["b"]), Suspend(until=NOW + 5_000))

    assert predict_sleep(state, [first, suspension]) == NOW + 5_000
    assert predict_end(state, [first, suspension]) is None
    for decision in (first, suspension):
        apply(plan, state, decision)
    assert state.root.active == 0
    assert state.root.count == 1


@pytest.mark.parametrize("outcome", [Output(1), Suspend(signal="go"), Suspend(until=9, signal="go")])
def test_outcome_other_than_timed_suspend_predicts_no_sleep(outcome: Outcome) -> None:
    plan = planned("start -> a")
    state, (token,) = start(plan)

    assert predict_sleep(state, [decide(plan, token, outcome)]) is None


def test_other_open_token_prevents_sleep_prediction() -> None:
    plan = planned("start -> a, start -> b")
    state, tokens = start(plan)

    assert predict_sleep(state, [decide(plan, tokens[0], Suspend(until=NOW + 1))]) is None


def test_suspension_inside_run_predicts_no_end() -> None:
    plan = planned("start -> a -> b, a -> c")
    state, (token,) = start(plan)
    first = decide(plan, token, Output(1))
    suspension = decide(plan, Token(plan.index["b"]), Suspend(until=NOW + 1))
    last = decide(plan, Token(plan.index["c"]), Output(1))

    assert predict_end(state, [first, suspension, last]) is None
