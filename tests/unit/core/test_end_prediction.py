"""What decisions will lead to, where that is certain before they are applied: it must be what applying them does."""

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
from tests.unit.core.plans import plan as planned

NOW = 1_000


def opened(plan: Plan) -> tuple[State, list[Token]]:
    state = State()
    return state, start_execution(plan, state, NOW).emitted


def decided(plan: Plan, token: Token, outcome: Outcome) -> Decision:
    return step(plan, token, outcome, NOW)


def test_the_last_result_of_a_chain_is_the_end() -> None:
    plan = planned("start -> a")
    state, (token,) = opened(plan)
    decision = decided(plan, token, Output(1))

    assert predict_end(state, [decision]) == FinishExecution("completed")
    assert apply(plan, state, decision).finish == FinishExecution("completed")


def test_a_run_that_decides_what_it_emits_is_the_end() -> None:
    plan = planned("start -> a -> b")
    state, (token,) = opened(plan)
    first = decided(plan, token, Output(1))
    second = decided(plan, Token(plan.index["b"]), Output(2))

    assert predict_end(state, [first]) is None
    assert predict_end(state, [first, second]) == FinishExecution("completed")


def test_what_is_open_elsewhere_keeps_the_end_uncertain() -> None:
    plan = planned("start -> a, start -> b")
    state, tokens = opened(plan)

    assert predict_end(state, [decided(plan, tokens[0], Output(1))]) is None


def test_an_execution_that_is_ending_or_unknown_has_no_second_end() -> None:
    plan = planned("start -> a")
    state, (token,) = opened(plan)
    decision = decided(plan, token, Output(1))
    failed = State(scopes=state.scopes, failures=1)
    ending = State(scopes=state.scopes, finish=FinishExecution("completed"))

    assert predict_end(failed, [decision]) is None
    assert predict_end(ending, [decision]) is None
    assert predict_end(State(), [decision]) is None


def test_a_token_that_is_not_there_ends_nothing() -> None:
    plan = planned("start -> a -> b")
    state, _ = opened(plan)

    assert predict_end(state, [decided(plan, Token(plan.index["b"]), Output(1))]) is None


def test_a_halt_is_left_to_the_rules() -> None:
    plan = planned("start -> a")
    state, (token,) = opened(plan)

    assert predict_end(state, [decided(plan, token, Failure(Error("X", "x")))]) is None


def test_the_only_token_waits_until_its_time() -> None:
    plan = planned("start -> a -> b")
    state, (token,) = opened(plan)
    first = decided(plan, token, Output(1))
    nap = decided(plan, Token(plan.index["b"]), Suspend(until=NOW + 5_000))

    assert predict_sleep(state, [first, nap]) == NOW + 5_000
    assert predict_end(state, [first, nap]) is None
    for decision in (first, nap):
        apply(plan, state, decision)
    assert state.root.active == 0
    assert state.root.count == 1


@pytest.mark.parametrize("outcome", [Output(1), Suspend(signal="go"), Suspend(until=9, signal="go")])
def test_only_a_time_is_a_certain_sleep(outcome: Outcome) -> None:
    plan = planned("start -> a")
    state, (token,) = opened(plan)

    assert predict_sleep(state, [decided(plan, token, outcome)]) is None


def test_a_sleep_beside_something_else_is_not_certain() -> None:
    plan = planned("start -> a, start -> b")
    state, tokens = opened(plan)

    assert predict_sleep(state, [decided(plan, tokens[0], Suspend(until=NOW + 1))]) is None


def test_a_suspension_in_the_middle_of_a_run_decides_nothing() -> None:
    plan = planned("start -> a -> b, a -> c")
    state, (token,) = opened(plan)
    first = decided(plan, token, Output(1))
    nap = decided(plan, Token(plan.index["b"]), Suspend(until=NOW + 1))
    last = decided(plan, Token(plan.index["c"]), Output(1))

    assert predict_end(state, [first, nap, last]) is None
