"""Routing: which edges a result makes alive, and which nodes its dead edges skip.

Every edge of a scope is resolved exactly once. Dead edges are followed breadth first: a join whose edges all die in
one decision is skipped by it, any other join receives dead arrivals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from rune.core.execution.decision import (
    ALIVE,
    DEAD,
    FAILED,
    ArriveAtJoin,
    CollectItem,
    Decision,
    Effect,
    EmitToken,
    FanOutItems,
    FinishExecution,
    SkipNode,
    UncollectedFailure,
)
from rune.core.execution.fact import NodeResult, TokenFact
from rune.core.execution.outcome import Error, ErrorOrigin
from rune.core.execution.token import Path, Ref
from rune.core.plan.model import Edges, NodePlan, Plan


class Routes(msgspec.Struct, frozen=True, gc=False):
    """How a result resolves the out-edges of its node: what live edges carry, and why the others are dead."""

    alive: Edges
    dead: Edges
    payload: Ref
    error: Ref | None  # `$error` after the live edges
    cause: Ref | None  # the unhandled error that the dead edges carry


def routes(node: NodePlan, fact: NodeResult) -> Routes:
    """Resolve the edges of a result that neither fans out nor ends the execution."""
    own_output = Ref("result", fact.node, fact.path)
    if fact.status == "ok":
        alive, dead = node.by_outlet.get(fact.outlet, node.normal)
        return Routes(alive, dead, fact.payload or own_output, fact.error, None)
    if fact.status == "skipped":
        return Routes((), node.out, own_output, None, fact.error)
    if fact.status == "cancelled":
        return Routes((), node.out, own_output, None, None)
    if node.policy == "collect":
        return Routes((), node.out, own_output, None, own_output)
    alive, dead = node.rescue if node.policy == "branch" else node.by_outlet.get(node.ignored, node.normal)
    return Routes(alive, dead, own_output, own_output, None)


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
            effects += [UncollectedFailure(fact.node, each) for each in (_error_of(plan, fact),) if each]
    found = routes(node, fact)
    effects += activate_edges(plan, found.alive, found.payload, found.error)
    if found.dead:
        propagate_dead_edges(plan, effects, found.dead, found.cause)
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
    effects: list[Effect] = [] if count else [SkipNode(each) for each in node.body]
    propagate_dead_edges(plan, effects, node.error_edges, None)
    error = fact.error if fact.status == "ok" else Ref("result", fact.node, fact.path)
    effects.append(FanOutItems(fact.node, count, fact.payload or Ref("result", fact.node, fact.path), error))
    return Decision(fact.node, fact.path, fact.at, fact, tuple(effects))


def activate_edges(plan: Plan, edges: Iterable[int], payload: Ref, error: Ref | None) -> list[Effect]:
    """Return the effects of live edges: a token, an arrival at a join, or an entry of the item."""
    effects: list[Effect] = []
    nodes, dst = plan.nodes, plan.dst
    for edge in edges:
        target = nodes[dst[edge]]
        if target.joins_items:
            effects.append(CollectItem(edge, ALIVE))
        elif target.is_join:
            effects.append(ArriveAtJoin(edge, True, payload, error))
        else:
            effects.append(EmitToken(target.index, payload, error))
    return effects


def propagate_dead_edges(plan: Plan, effects: list[Effect], edges: Iterable[int], error: Ref | None) -> None:
    """Skip the nodes that can no longer run, and send dead arrivals to joins that have other open edges."""
    queue: deque[tuple[int, Ref | None]] = deque((edge, error) for edge in edges)
    reached: dict[int, dict[int, Ref | None]] = {}
    # A skipped or failed split has no items, so its aggregator is resolved like any other join.
    skipped = {plan.src[edge] for edge, _ in queue}
    while queue:
        edge, cause = queue.popleft()
        node = plan.nodes[plan.dst[edge]]
        if node.joins_items and node.split_of not in skipped:
            effects.append(CollectItem(edge, FAILED if cause else DEAD))
            continue
        if node.is_join or node.joins_items:
            causes = reached.setdefault(node.index, {})
            causes[edge] = cause
            if len(causes) < len(node.in_edges) or (_may_expire(node) and node.split not in skipped):
                continue
            del reached[node.index]
            cause = next((causes[each] for each in node.in_edges if causes[each]), None)
        effects.append(SkipNode(node.index))
        skipped.add(node.index)
        queue.extend((each, cause) for each in node.out)
    for causes in reached.values():
        effects += [ArriveAtJoin(edge, False, None, cause) for edge, cause in causes.items()]


def _may_expire(node: NodePlan) -> bool:
    """Return whether the join can expire before its first arrival: only the state knows whether it still waits."""
    return node.timeout is not None and node.timeout_from == "scope"
