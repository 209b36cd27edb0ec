"""Turn the outcome of a token into a decision: validate the outcome, apply the retry policy, route the result.

The same token, outcome and time always give the same decision. An outcome that the node cannot have fails its attempt.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rune.core.execution.decision import (
    Decision,
    Effect,
    FanOutItems,
    FinishExecution,
    SkipNode,
    UncollectedFailure,
)
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, TokenFact
from rune.core.execution.outcome import Error, ErrorOrigin, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.retry import SIGNAL_MISMATCH, is_retried
from rune.core.execution.routing import activate_edges, propagate_dead_edges, routes
from rune.core.execution.token import Path, Ref, Token, TokenPurpose
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import NodePlan, Plan

BAD_OUTCOME = "BAD_OUTCOME"
LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
MAX_TIME_MS = 2**53  # every store and every JSON reader represents integers up to here exactly

UNREACHABLE = Error("UNREACHABLE", "too few of the paths into this node can still arrive")
SIGNAL_TIMEOUT = Error("TIMEOUT", "the signal did not arrive within the timeout of the node", engine=True)
CHILD_TIMEOUT = Error("TIMEOUT", "the child did not end within the timeout of the node", engine=True)


def invalid_outcome(node: NodePlan, token: Token, outcome: Outcome, limits: Limits) -> Error | None:
    """Return what is wrong with an outcome, or None. The caller has already accepted valid outputs."""
    if isinstance(outcome, Output):
        return _invalid(node, _invalid_output(node, outcome))
    if isinstance(outcome, FanOut):
        return _invalid_items(node, outcome, limits)
    if isinstance(outcome, Suspend):
        return _invalid(node, _invalid_suspension(token, outcome))
    if isinstance(outcome, Failure):
        return _invalid(node, _invalid_failure(outcome))
    return None


def _invalid(node: NodePlan, what: str | None) -> Error | None:
    return None if what is None else Error(BAD_OUTCOME, f"`{node.id}` {what}")


def _invalid_output(node: NodePlan, outcome: Output) -> str:
    if node.fans_out:
        return "returned an output, but must return items"
    outlets = ", ".join(f"`{outlet}`" for outlet in node.by_outlet if outlet is not None)
    return f"selected outlet {_shortened(outcome.outlet)}; it has {outlets or 'none'}"


def _invalid_items(node: NodePlan, outcome: FanOut, limits: Limits) -> Error | None:
    if not node.fans_out:
        return _invalid(node, "returned items, but does not fan out")
    if type(outcome.count) is not int or outcome.count < 0:
        return _invalid(node, f"returned items, but their count is {_shortened(outcome.count)}")
    if outcome.count > limits.items:
        message = f"`{node.id}` returned {_shortened(outcome.count)} items: at most {limits.items:,} allowed"
        return Error(LIMIT_EXCEEDED, message, {"limit": "items", "allowed": limits.items})
    return None


def _invalid_suspension(token: Token, outcome: Suspend) -> str | None:
    if token.resumed:
        return "suspended a second time in one attempt"
    if outcome.until is None and outcome.signal is None:
        return "suspended without a time or a signal"
    if outcome.until is not None and (type(outcome.until) is not int or abs(outcome.until) > MAX_TIME_MS):
        return f"waits until {_shortened(outcome.until)}, which is not a time in ms"
    if outcome.signal is not None and type(outcome.signal) is not str:
        return f"waits for signal {_shortened(outcome.signal)}, which is not a name"
    return None


def _invalid_failure(outcome: Failure) -> str | None:
    error = outcome.error
    if type(error) is not Error:
        return f"failed with {_shortened(error)}, which is not an error"
    if type(error.code) is not str or not error.code:
        return f"failed with code {_shortened(error.code)}, which is not a code"
    if type(error.message) is not str or type(error.details) is not dict:
        return f"failed with code {_shortened(error.code)} and an incomplete error"
    return None


def _shortened(value: object) -> str:
    """Format a value for a message. Never fails, not even for huge numbers or lone surrogates."""
    if isinstance(value, str):
        return f"`{value[:100].encode('utf-8', 'backslashreplace').decode()}`"
    if type(value) is int and abs(value) <= MAX_TIME_MS:
        return f"{value:,}"
    return f"a value of type {type(value).__name__}"


def step(plan: Plan, token: Token, outcome: Outcome, now: int, limits: Limits = LIMITS) -> Decision:
    """Turn the outcome of a token into the decision to commit."""
    return decision_for_fact(plan, fact_for_outcome(plan, token, outcome, now, limits))


def step_unrun(plan: Plan, token: Token, now: int) -> Decision:
    """Decide a token that never runs its node: skipped, unreachable, expired, overdue, or a dispatch of items."""
    match token.fate:
        case TokenPurpose.DISPATCH:
            return Decision(token.node, token.path, now, None)
        case TokenPurpose.UNREACHABLE:
            return decision_for_fact(
                plan, _result(plan.nodes[token.node], token, now, "failed", failure=UNREACHABLE)
            )
        case TokenPurpose.EXPIRE:
            node = plan.nodes[token.node]
            return decision_for_fact(plan, _result(node, token, now, "failed", failure=_expired(node)))
        case TokenPurpose.OVERDUE:
            node = plan.nodes[token.node]
            error = CHILD_TIMEOUT if node.type.launches else SIGNAL_TIMEOUT
            return decision_for_fact(plan, _failed(node, token, now, error))
        case _:
            return _skipped(plan, token, now)


def _expired(node: NodePlan) -> Error:
    """Return the error of a join that has not opened in time."""
    if node.joins_items:
        missing = "the items that this node collects did not all arrive"
    elif node.opens == "all":
        missing = "the paths into this node did not all arrive"
    elif node.opens == "any":
        missing = "none of the paths into this node arrived"
    else:
        missing = f"fewer than {node.opens} of the paths into this node arrived"
    return Error("TIMEOUT", f"{missing} in time", {"expired": True}, engine=True)


def _skipped(plan: Plan, token: Token, now: int) -> Decision:
    """Skip a token. A join with a timeout may expire concurrently, so its skip is recorded as a fact."""
    node = plan.nodes[token.node]
    if node.timeout is None:
        return skip(plan, token.node, token.path, token.error, token.at)
    return decision_for_fact(plan, NodeResult(token.node, token.path, now, "skipped", error=token.error))


def fact_for_outcome(
    plan: Plan, token: Token, outcome: Outcome, now: int, limits: Limits = LIMITS
) -> TokenFact:
    """Return the fact to write for an outcome. An outcome that the node cannot have is a failure."""
    node = plan.nodes[token.node]
    if type(outcome) is Output:
        outlet = outcome.outlet
        if (outlet is None or type(outlet) is str) and outlet in node.by_outlet:
            return _result(node, token, now, "ok", value=outcome.value, outlet=outlet)
    problem = invalid_outcome(node, token, outcome, limits)
    if problem is not None:
        return _failed(node, token, now, problem)
    if type(outcome) is FanOut:
        return _result(node, token, now, "ok", value=outcome.value, items=outcome.count)
    if type(outcome) is Suspend:
        timeout = node.node.timeout if outcome.signal is not None else None
        deadline = None if timeout is None else now + round(timeout * 1000)
        return NodeSuspended(
            token.node, token.path, now, token.attempt, outcome.until, outcome.signal, deadline
        )
    if type(outcome) is Failure:
        return _failed(node, token, now, outcome.error)
    return _result(node, token, now, "cancelled")


def _failed(node: NodePlan, token: Token, now: int, error: Error) -> TokenFact:
    waits_again = token.signal is not None and error.code == SIGNAL_MISMATCH
    if waits_again or is_retried(node.retry, token.attempt, error, node.type.permanent):
        return AttemptFailed(token.node, token.path, now, token.attempt, error, token.signal)
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
) -> NodeResult:
    passes = node.passes_payload or node.fans_out
    return NodeResult(
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


def decision_for_fact(plan: Plan, fact: TokenFact) -> Decision:
    """Return the decision that follows from a fact. Only a result is routed; other facts change only their token."""
    if type(fact) is not NodeResult:
        return Decision(fact.node, fact.path, fact.at, fact)
    node = plan.nodes[fact.node]
    if fact.items is not None:
        return _fan_out(plan, node, fact, fact.items)
    effects: list[Effect] = []
    if fact.status == "failed":
        if node.policy == "halt":
            detected = fact.failure is not None and fact.failure.engine
            finish = FinishExecution("failed" if detected else "halted", _error_of(plan, fact))
            return Decision(fact.node, fact.path, fact.at, fact, (finish,))
        if node.policy == "ignore" and node.fans_out:
            return _fan_out(plan, node, fact, 0)
        if node.policy == "collect" and not node.listed:
            effects += [UncollectedFailure(fact.node, error) for error in (_error_of(plan, fact),) if error]
    resolved = routes(node, fact)
    effects += activate_edges(plan, resolved.alive, resolved.payload, resolved.error)
    if resolved.dead:
        propagate_dead_edges(plan, effects, resolved.dead, resolved.cause)
    return Decision(fact.node, fact.path, fact.at, fact, tuple(effects))


def error_origin(plan: Plan, node: int, path: Path, attempt: int) -> ErrorOrigin:
    """Return where an error of an execution comes from."""
    lineage = tuple((plan.ids[path[cut]], path[cut + 1]) for cut in range(0, len(path), 2))
    return ErrorOrigin(plan.ids[node], plan.nodes[node].node.type, lineage, attempt)


def _error_of(plan: Plan, fact: NodeResult) -> Error | None:
    """Return the failure of a node as an error of its execution."""
    if fact.failure is None:
        return None
    origin = error_origin(plan, fact.node, fact.path, fact.attempt)
    return msgspec.structs.replace(fact.failure, origin=origin, traceback="")


def skip(plan: Plan, node: int, path: Path, error: Ref | None, at: int) -> Decision:
    """Decide a token that no live edge leads to. It has no fact, as it follows from other facts."""
    effects: list[Effect] = []
    propagate_dead_edges(plan, effects, plan.nodes[node].out, error)
    return Decision(node, path, at, None, tuple(effects))


def _fan_out(plan: Plan, node: NodePlan, fact: NodeResult, count: int) -> Decision:
    effects: list[Effect] = [] if count else [SkipNode(index) for index in node.body]
    propagate_dead_edges(plan, effects, node.error_edges, None)
    error = fact.error if fact.status == "ok" else Ref("result", fact.node, fact.path)
    effects.append(FanOutItems(fact.node, count, fact.payload or Ref("result", fact.node, fact.path), error))
    return Decision(fact.node, fact.path, fact.at, fact, tuple(effects))
