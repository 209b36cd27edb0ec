"""Step: what the end of a run means. Pure: the same token, outcome and time always give the same decision."""

from __future__ import annotations

from typing import assert_never

from rune.core.effect import Decision
from rune.core.fact import Attempt, Result, Suspension, TokenFact
from rune.core.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.plan import NodePlan, Plan
from rune.core.retry import tries_again
from rune.core.routing import follow, skip
from rune.core.token import Fate, Token

UNREACHABLE = Error("UNREACHABLE", "too few of the paths into this node can still arrive")
EXPIRED = Error("TIMEOUT", "the paths into this node did not all arrive in time", engine=True)


def step(plan: Plan, token: Token, outcome: Outcome, now: int) -> Decision:
    """Turn the outcome of a token into the decision that the commit will make true."""
    return follow(plan, settle(plan, token, outcome, now))


def step_unrun(plan: Plan, token: Token, now: int) -> Decision:
    """Decide a token that never reaches its node: skipped, unreachable, expired, or a dispatch of more items."""
    match token.fate:
        case Fate.DISPATCH:
            return Decision(token.node, token.path, now, None)
        case Fate.UNREACHABLE:
            return follow(plan, _result(plan.nodes[token.node], token, now, "failed", failure=UNREACHABLE))
        case Fate.EXPIRE:
            return follow(plan, _result(plan.nodes[token.node], token, now, "failed", failure=EXPIRED))
        case _:
            return _skipped(plan, token, now)


def _skipped(plan: Plan, token: Token, now: int) -> Decision:
    """A join with a timeout may be given up elsewhere at this very moment: then only a row can say which came first."""
    node = plan.nodes[token.node]
    if node.timeout is None:
        return skip(plan, token.node, token.path, token.error, token.at)
    return follow(plan, Result(token.node, token.path, now, "skipped", error=token.error))


def settle(plan: Plan, token: Token, outcome: Outcome, now: int) -> TokenFact:
    """The fact that an outcome proposes to the journal."""
    node = plan.nodes[token.node]
    match outcome:
        case Output(value, outlet):
            return _result(node, token, now, "ok", value=value, outlet=outlet)
        case FanOut(count, value):
            return _result(node, token, now, "ok", value=value, items=count)
        case Suspend(until, signal):
            return Suspension(token.node, token.path, now, token.attempt, until, signal)
        case Failure(error):
            if tries_again(node.retry, token.attempt, error):
                return Attempt(token.node, token.path, now, token.attempt, error)
            return _result(node, token, now, "failed", failure=error)
        case Cancelled():
            return _result(node, token, now, "cancelled")
        case _:
            assert_never(outcome)


def _result(
    node: NodePlan,
    token: Token,
    now: int,
    status: str,
    *,
    value: object = None,
    outlet: str | None = None,
    items: int | None = None,
    failure: Error | None = None,
) -> Result:
    passes = node.passes_payload or node.fans_out
    return Result(
        token.node,
        token.path,
        now,
        status,  # type: ignore[arg-type]
        outlet,
        value,
        failure,
        items,
        token.payload if passes else None,
        token.error,
        token.arrived,
        token.attempt,
    )

