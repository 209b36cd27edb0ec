"""Step: what the end of a run means. Pure: the same token, outcome and time always give the same decision."""

from __future__ import annotations

from typing import Literal

from rune.core.effect import Decision
from rune.core.fact import Attempt, Result, Suspension, TokenFact
from rune.core.limits import LIMITS, Limits
from rune.core.mistake import mistake
from rune.core.outcome import Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.plan import NodePlan, Plan
from rune.core.retry import tries_again
from rune.core.routing import follow, skip
from rune.core.token import Fate, Token

UNREACHABLE = Error("UNREACHABLE", "too few of the paths into this node can still arrive")
EXPIRED = Error(
    "TIMEOUT", "the paths into this node did not all arrive in time", {"expired": True}, engine=True
)
UNHEARD = Error("TIMEOUT", "what the node waited for did not come within its timeout", engine=True)


def step(plan: Plan, token: Token, outcome: Outcome, now: int, limits: Limits = LIMITS) -> Decision:
    """Turn the outcome of a token into the decision that the commit will make true."""
    return follow(plan, settle(plan, token, outcome, now, limits))


def step_unrun(plan: Plan, token: Token, now: int) -> Decision:
    """Decide a token that never reaches its node: skipped, unreachable, expired, or more items to start."""
    match token.fate:
        case Fate.DISPATCH:
            return Decision(token.node, token.path, now, None)
        case Fate.UNREACHABLE:
            return follow(plan, _result(plan.nodes[token.node], token, now, "failed", failure=UNREACHABLE))
        case Fate.EXPIRE:
            return follow(plan, _result(plan.nodes[token.node], token, now, "failed", failure=EXPIRED))
        case Fate.OVERDUE:
            return follow(plan, _failed(plan.nodes[token.node], token, now, UNHEARD))
        case _:
            return _skipped(plan, token, now)


def _skipped(plan: Plan, token: Token, now: int) -> Decision:
    """A join with a timeout may be given up elsewhere at this moment: only a row can say which came first."""
    node = plan.nodes[token.node]
    if node.timeout is None:
        return skip(plan, token.node, token.path, token.error, token.at)
    return follow(plan, Result(token.node, token.path, now, "skipped", error=token.error))


def settle(plan: Plan, token: Token, outcome: Outcome, now: int, limits: Limits = LIMITS) -> TokenFact:
    """The fact that an outcome proposes to the journal. An outcome that the node cannot have is a failure."""
    node = plan.nodes[token.node]
    if type(outcome) is Output:
        outlet = outcome.outlet
        if (outlet is None or type(outlet) is str) and outlet in node.by_outlet:
            return _result(node, token, now, "ok", value=outcome.value, outlet=outlet)
    problem = mistake(node, token, outcome, limits)
    if problem is not None:
        return _failed(node, token, now, problem)
    if type(outcome) is FanOut:
        return _result(node, token, now, "ok", value=outcome.value, items=outcome.count)
    if type(outcome) is Suspend:
        timeout = node.node.timeout if outcome.signal is not None else None
        deadline = None if timeout is None else now + round(timeout * 1000)
        return Suspension(token.node, token.path, now, token.attempt, outcome.until, outcome.signal, deadline)
    if type(outcome) is Failure:
        return _failed(node, token, now, outcome.error)
    return _result(node, token, now, "cancelled")


def _failed(node: NodePlan, token: Token, now: int, error: Error) -> TokenFact:
    if tries_again(node.retry, token.attempt, error):
        return Attempt(token.node, token.path, now, token.attempt, error, token.signal)
    return _result(node, token, now, "failed", failure=error)


def _result(
    node: NodePlan,
    token: Token,
    now: int,
    status: Literal["ok", "failed", "cancelled"],
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
        status,
        outlet,
        value,
        failure,
        items,
        token.payload if passes else None,
        token.error,
        token.arrived,
        token.attempt,
        signal=token.signal,
    )
