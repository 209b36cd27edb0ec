"""What the end of a run means; an outcome that a node cannot have is a failure, never an exception."""

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
from tests.unit.core.plans import NOW, Life, choose, gather, merge, node, plan, split

EVERY = plan(
    """start -> x -> w -> i, i -true-> s -> y -> g -> m, i -false-> z -> m,
    m -> f, s -!-> e""",
    i=choose(),
    s=split(error="branch"),
    g=gather(),
    m=merge(),
    w=node("wait", {"amount": 1}),
    f=node(retry={"max_attempts": 2, "on": ["BAD_OUTCOME", "E"]}),
)


def untyped(value: object) -> Any:
    """What a node may give although its author was told not to."""
    return value


def fact(name: str, outcome: Outcome, **token: Any) -> Any:
    return fact_for_outcome(EVERY, Token(EVERY.index[name], **token), outcome, NOW)


def mistake(name: str, outcome: Outcome, **token: Any) -> Error:
    found = fact(name, outcome, **token)
    assert isinstance(found, NodeResult)
    assert found.failure is not None
    return found.failure


def test_an_output_is_a_result() -> None:
    assert fact("x", Output({"k": 1})) == NodeResult(EVERY.index["x"], (), NOW, "ok", value={"k": 1})


def test_a_router_says_which_way() -> None:
    found = fact("i", Output({"result": True}, "true"), payload=Ref("result", 1))

    assert (found.status, found.outlet, found.payload) == ("ok", "true", Ref("result", 1))


def test_items_are_counted_and_the_payload_passes() -> None:
    found = fact("s", FanOut(3, [1, 2, 3]), payload=START)

    assert (found.items, found.value, found.payload) == (3, [1, 2, 3], START)


def test_a_suspension_keeps_its_time_and_signal() -> None:
    assert fact("w", Suspend(NOW + 5, "go")) == NodeSuspended(EVERY.index["w"], (), NOW, 1, NOW + 5, "go")


def test_a_failure_is_an_attempt_while_the_policy_grants_one() -> None:
    error = Error("E", "no")

    assert fact("f", Failure(error)) == AttemptFailed(EVERY.index["f"], (), NOW, 1, error)
    assert fact("f", Failure(error), attempt=2).status == "failed"
    assert fact("f", Failure(Error("OTHER", "no"))).status == "failed"
    assert fact("x", Failure(error)).failure == error


def test_a_cancelled_token_ends_as_cancelled() -> None:
    assert fact("x", Cancelled()).status == "cancelled"


@pytest.mark.parametrize(
    ("name", "outcome", "says"),
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
def test_an_outcome_that_the_node_cannot_have_fails_it(name: str, outcome: Outcome, says: str) -> None:
    assert mistake(name, outcome) == Error("BAD_OUTCOME", says)


def test_a_token_waits_once_per_attempt() -> None:
    assert mistake("w", Suspend(NOW), resumed=True).code == "BAD_OUTCOME"


@pytest.mark.parametrize("digits", [7, 30, 5000])
def test_more_items_than_the_limit_fail_the_split_and_name_it(digits: int) -> None:
    found = mistake("s", FanOut(10**digits))

    assert found.code == "LIMIT_EXCEEDED"
    assert found.details == {"limit": "items", "allowed": 1_000_000}
    assert "`s`" in found.message
    assert "1,000,000" in found.message


def test_the_limit_on_items_is_a_setting() -> None:
    token = Token(EVERY.index["s"])

    refused = fact_for_outcome(EVERY, token, FanOut(6), NOW, Limits(items=5))
    taken = fact_for_outcome(EVERY, token, FanOut(5), NOW, Limits(items=5))

    assert isinstance(refused, NodeResult)
    assert refused.failure is not None
    assert isinstance(taken, NodeResult)
    assert taken.items == 5


def test_a_mistake_is_tried_again_like_any_failure() -> None:
    assert isinstance(fact("f", FanOut(1)), AttemptFailed)


def test_a_mistake_follows_the_error_policy() -> None:
    life = Life(plan("start -> s -> x -> g, s -!-> e", s=split(error="branch"), g=gather()))

    life.ends("s", Output("no list"))

    assert life.queue == {"e@/"}


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
errors = st.builds(
    Error, st.one_of(odd, st.text()), odd, st.one_of(odd, st.dictionaries(st.text(), odd)), odd
)
outcomes: st.SearchStrategy[Any] = st.one_of(
    st.builds(Output, odd, st.one_of(odd, st.sampled_from(["true", "false", "case_0"]))),
    st.builds(Failure, st.one_of(errors, odd)),
    st.builds(Suspend, odd, odd),
    st.builds(FanOut, st.one_of(odd, st.integers(0, 3), st.just(10**6), st.just(10**6 + 1)), odd),
    st.just(Cancelled()),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EVERY.ids[1:]), outcomes, st.booleans(), st.integers(1, 3))
@example("s", FanOut(10**6), False, 1)
def test_whatever_a_node_gives_a_decision_follows(
    name: str, outcome: Any, resumed: bool, attempt: int
) -> None:
    path = (EVERY.index["s"], 0) if name == "y" else ()
    token = Token(EVERY.index[name], path, resumed=resumed, attempt=attempt)

    decision = step(EVERY, token, outcome, NOW)

    assert (decision.node, decision.path, decision.at) == (token.node, path, NOW)
    assert decision.fact is not None
    assert step(EVERY, token, outcome, NOW) == decision


@settings(max_examples=200, deadline=None)
@given(st.lists(outcomes, min_size=1, max_size=12))
def test_whatever_nodes_give_the_rules_go_on(given_outcomes: list[Any]) -> None:
    state = State(limits=Limits(items=50))
    tokens = start_execution(EVERY, state, NOW).emitted
    for outcome in given_outcomes:
        if not tokens:
            break
        token = tokens.pop()
        run = token.fate is TokenPurpose.RUN
        decision = step(EVERY, token, outcome, NOW, state.limits) if run else step_unrun(EVERY, token, NOW)
        applied = apply(EVERY, state, decision)
        assert applied.known
        tokens += applied.emitted


@pytest.mark.parametrize(
    ("fate", "code"), [(TokenPurpose.UNREACHABLE, "UNREACHABLE"), (TokenPurpose.EXPIRE, "TIMEOUT")]
)
def test_joins_that_cannot_run_fail_with_a_code(fate: TokenPurpose, code: str) -> None:
    decision = step_unrun(EVERY, Token(EVERY.index["m"], fate=fate), NOW)

    assert isinstance(decision.fact, NodeResult)
    assert decision.fact.failure is not None
    assert decision.fact.failure.code == code


def test_a_dispatch_leaves_no_fact() -> None:
    decision = step_unrun(EVERY, Token(EVERY.index["s"], fate=TokenPurpose.DISPATCH), NOW)

    assert (decision.fact, decision.effects) == (None, ())


def test_a_skip_leaves_a_fact_only_where_a_timeout_could_contradict_it() -> None:
    plain = plan("start -> a -> j, start -> b -> j")
    timed = plan("start -> a -> m, start -> b -> m", m=merge())

    silent = step_unrun(plain, Token(plain.index["j"], fate=TokenPurpose.SKIP, at=NOW), NOW + 5)
    loud = step_unrun(timed, Token(timed.index["m"], fate=TokenPurpose.SKIP, at=NOW), NOW + 5)

    assert (silent.fact, silent.at) == (None, NOW)
    assert isinstance(loud.fact, NodeResult)
    assert (loud.fact.status, loud.at) == ("skipped", NOW + 5)
