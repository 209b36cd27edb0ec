"""Facts and decisions that follow from the outcome of a run; an invalid outcome is a failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.state import State
from rune.core.execution.step import MAX_TIME_MS, fact_for_outcome, step, step_unrun
from rune.core.execution.token import START, Ref, Token, TokenPurpose
from rune.core.execution.transition import apply, start_execution
from rune.core.limits import Limits
from tests.support.plans import NOW, ExecutionDriver, aggregator, conditional, merge, node, plan, split

PLAN = plan(
    """start -> x -> w -> i, i -true-> s -> y -> g -> m, i -false-> z -> m,
    m -> f, s -!-> e""",
    i=conditional(),
    s=split(error="branch"),
    g=aggregator(),
    m=merge(),
    w=node("wait", {"amount": 1}),
    f=node(retry={"max_attempts": 2, "on": ["BAD_OUTCOME", "E"]}),
)


def untyped(value: object) -> Any:
    """A value of any type, for outcomes that violate the type hints."""
    return value


def fact_of(name: str, outcome: Outcome, **token: Any) -> Any:
    return fact_for_outcome(PLAN, Token(PLAN.index[name], **token), outcome, NOW)


def failure_of(name: str, outcome: Outcome, **token: Any) -> Error:
    found = fact_of(name, outcome, **token)
    assert isinstance(found, NodeResult)
    assert found.failure is not None
    return found.failure


def test_output_becomes_ok_result() -> None:
    assert fact_of("x", Output({"k": 1})) == NodeResult(PLAN.index["x"], (), NOW, "ok", value={"k": 1})


def test_router_result_keeps_outlet_and_payload() -> None:
    found = fact_of("i", Output({"result": True}, "true"), payload=Ref("result", 1))

    assert (found.status, found.outlet, found.payload) == ("ok", "true", Ref("result", 1))


def test_fan_out_result_keeps_count_and_payload() -> None:
    found = fact_of("s", FanOut(3, [1, 2, 3]), payload=START)

    assert (found.items, found.value, found.payload) == (3, [1, 2, 3], START)


def test_suspension_keeps_time_and_signal() -> None:
    assert fact_of("w", Suspend(NOW + 5, "go")) == NodeSuspended(PLAN.index["w"], (), NOW, 1, NOW + 5, "go")


def test_failure_is_attempt_while_retries_remain() -> None:
    error = Error("E", "no")

    assert fact_of("f", Failure(error)) == AttemptFailed(PLAN.index["f"], (), NOW, 1, error)
    assert fact_of("f", Failure(error), attempt=2).status == "failed"
    assert fact_of("f", Failure(Error("OTHER", "no"))).status == "failed"
    assert fact_of("x", Failure(error)).failure == error


def test_cancelled_outcome_becomes_cancelled_result() -> None:
    assert fact_of("x", Cancelled()).status == "cancelled"


@pytest.mark.parametrize(
    ("name", "outcome", "message"),
    [
        ("x", Output(1, "true"), "`x` selected outlet `true`; it has none"),
        ("i", Output(1), "`i` selected outlet a value of type NoneType; it has `true`, `false`"),
        ("i", Output(1, "maybe"), "`i` selected outlet `maybe`; it has `true`, `false`"),
        (
            "i",
            Output(1, untyped(["true"])),
            "`i` selected outlet a value of type list; it has `true`, `false`",
        ),
        ("i", Output(1, "\ud800"), "`i` selected outlet `\\ud800`; it has `true`, `false`"),
        ("s", Output([1]), "`s` returned an output, but must return items"),
        ("x", FanOut(2), "`x` returned items, but does not fan out"),
        ("g", FanOut(0), "`g` returned items, but does not fan out"),
        ("s", FanOut(-1), "`s` returned items, but their count is -1"),
        ("s", FanOut(True), "`s` returned items, but their count is a value of type bool"),
        ("s", FanOut(untyped(2.0)), "`s` returned items, but their count is a value of type float"),
        ("s", FanOut(-(10**5000)), "`s` returned items, but their count is a value of type int"),
        ("x", Suspend(), "`x` suspended without a time or a signal"),
        ("x", Suspend(untyped(1.5)), "`x` waits until a value of type float, which is not a time in ms"),
        ("x", Suspend(MAX_TIME_MS + 1), "`x` waits until a value of type int, which is not a time in ms"),
        ("x", Suspend(signal=untyped(7)), "`x` waits for signal 7, which is not a name"),
        ("x", Failure(untyped("broken")), "`x` failed with `broken`, which is not an error"),
        ("x", Failure(Error("", "no")), "`x` failed with code ``, which is not a code"),
        ("x", Failure(Error(untyped(404), "no")), "`x` failed with code 404, which is not a code"),
        ("x", Failure(Error("E", untyped(None))), "`x` failed with code `E` and an incomplete error"),
        (
            "x",
            Failure(Error("E", "", untyped([]))),
            "`x` failed with code `E` and an incomplete error",
        ),
    ],
)
def test_invalid_outcome_fails_with_bad_outcome(name: str, outcome: Outcome, message: str) -> None:
    assert failure_of(name, outcome) == Error("BAD_OUTCOME", message)


def test_second_suspension_of_attempt_is_bad_outcome() -> None:
    assert failure_of("w", Suspend(NOW), resumed=True).code == "BAD_OUTCOME"


@pytest.mark.parametrize("digits", [7, 30, 5000])
def test_items_above_limit_fail_the_split(digits: int) -> None:
    found = failure_of("s", FanOut(10**digits))

    assert found.code == "LIMIT_EXCEEDED"
    assert found.details == {"limit": "items", "allowed": 1_000_000}
    assert "`s`" in found.message
    assert "1,000,000" in found.message


def test_item_limit_is_configurable() -> None:
    token = Token(PLAN.index["s"])

    rejected = fact_for_outcome(PLAN, token, FanOut(6), NOW, Limits(items=5))
    accepted = fact_for_outcome(PLAN, token, FanOut(5), NOW, Limits(items=5))

    assert isinstance(rejected, NodeResult)
    assert rejected.failure is not None
    assert isinstance(accepted, NodeResult)
    assert accepted.items == 5


def test_bad_outcome_is_retried() -> None:
    assert isinstance(fact_of("f", FanOut(1)), AttemptFailed)


def test_bad_outcome_follows_error_policy() -> None:
    execution = ExecutionDriver(
        plan("start -> s -> x -> g, s -!-> e", s=split(error="branch"), g=aggregator())
    )

    execution.step("s", Output("no list"))

    assert execution.queue == {"e@/"}


any_value = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
errors = st.builds(
    Error,
    st.one_of(any_value, st.text()),
    any_value,
    st.one_of(any_value, st.dictionaries(st.text(), any_value)),
    any_value,
)
outcomes: st.SearchStrategy[Any] = st.one_of(
    st.builds(Output, any_value, st.one_of(any_value, st.sampled_from(["true", "false", "case_0"]))),
    st.builds(Failure, st.one_of(errors, any_value)),
    st.builds(Suspend, any_value, any_value),
    st.builds(FanOut, st.one_of(any_value, st.integers(0, 3), st.just(10**6), st.just(10**6 + 1)), any_value),
    st.just(Cancelled()),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLAN.ids[1:]), outcomes, st.booleans(), st.integers(1, 3))
@example("s", FanOut(10**6), False, 1)
def test_step_never_raises_on_any_outcome(name: str, outcome: Any, resumed: bool, attempt: int) -> None:
    path = (PLAN.index["s"], 0) if name == "y" else ()
    token = Token(PLAN.index[name], path, resumed=resumed, attempt=attempt)

    decision = step(PLAN, token, outcome, NOW)

    assert (decision.node, decision.path, decision.at) == (token.node, path, NOW)
    assert decision.fact is not None
    assert step(PLAN, token, outcome, NOW) == decision


@settings(max_examples=200, deadline=None)
@given(st.lists(outcomes, min_size=1, max_size=12))
def test_execution_continues_after_any_outcomes(given_outcomes: list[Any]) -> None:
    state = State(limits=Limits(items=50))
    tokens = start_execution(PLAN, state, NOW).emitted
    for outcome in given_outcomes:
        if not tokens:
            break
        token = tokens.pop()
        run = token.fate is TokenPurpose.RUN
        decision = step(PLAN, token, outcome, NOW, state.limits) if run else step_unrun(PLAN, token, NOW)
        applied = apply(PLAN, state, decision)
        assert applied.known
        tokens += applied.emitted


@pytest.mark.parametrize(
    ("fate", "code"), [(TokenPurpose.UNREACHABLE, "UNREACHABLE"), (TokenPurpose.EXPIRE, "TIMEOUT")]
)
def test_unreachable_and_expired_joins_fail_with_code(fate: TokenPurpose, code: str) -> None:
    decision = step_unrun(PLAN, Token(PLAN.index["m"], fate=fate), NOW)

    assert isinstance(decision.fact, NodeResult)
    assert decision.fact.failure is not None
    assert decision.fact.failure.code == code


@pytest.mark.parametrize(
    ("wait_mode", "text"),
    [
        ("wait_for_all", "the paths into this node did not all arrive in time"),
        ("wait_for_any", "none of the paths into this node arrived in time"),
        ({"at_least": 2}, "fewer than 2 of the paths into this node arrived in time"),
    ],
)
def test_expired_merge_tells_what_it_waited_for(wait_mode: Any, text: str) -> None:
    joined = plan(
        "start -> a -> m, start -> b -> m, start -> c -> m", m=node("merge", {"wait_mode": wait_mode})
    )
    decision = step_unrun(joined, Token(joined.index["m"], fate=TokenPurpose.EXPIRE), NOW)

    assert isinstance(decision.fact, NodeResult)
    assert decision.fact.failure is not None
    assert decision.fact.failure.message == text


def test_expired_aggregator_tells_what_it_waited_for() -> None:
    decision = step_unrun(PLAN, Token(PLAN.index["g"], fate=TokenPurpose.EXPIRE), NOW)

    assert isinstance(decision.fact, NodeResult)
    assert decision.fact.failure is not None
    assert decision.fact.failure.message == "the items that this node collects did not all arrive in time"


def test_dispatch_has_no_fact() -> None:
    decision = step_unrun(PLAN, Token(PLAN.index["s"], fate=TokenPurpose.DISPATCH), NOW)

    assert (decision.fact, decision.effects) == (None, ())


def test_skip_has_fact_only_for_join_with_timeout() -> None:
    plain = plan("start -> a -> j, start -> b -> j")
    timed = plan("start -> a -> m, start -> b -> m", m=merge())

    without_fact = step_unrun(plain, Token(plain.index["j"], fate=TokenPurpose.SKIP, at=NOW), NOW + 5)
    with_fact = step_unrun(timed, Token(timed.index["m"], fate=TokenPurpose.SKIP, at=NOW), NOW + 5)

    assert (without_fact.fact, without_fact.at) == (None, NOW)
    assert isinstance(with_fact.fact, NodeResult)
    assert (with_fact.fact.status, with_fact.at) == ("skipped", NOW + 5)
