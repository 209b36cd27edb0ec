"""Routing: which edges a result makes alive, and how far a dead edge reaches.

Every edge of a scope is resolved exactly once. Dead edges are followed breadth first; a join all of whose
edges die in one decision is skipped in it, any other join is told.
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
from rune.core.execution.token import Path, Ref
from rune.core.plan.model import Edges, NodePlan, Plan


class Routes(msgspec.Struct, frozen=True, gc=False):
    """How a result resolves the edges out of its node: what live ones carry, and why the others are dead."""

    alive: Edges
    dead: Edges
    payload: Ref
    error: Ref | None  # `$error` behind the live edges
    cause: Ref | None  # the unhandled error that the dead edges carry on


def routes(node: NodePlan, fact: NodeResult) -> Routes:
    """The edges of a result that is neither a fan-out nor an end of the execution."""
    itself = Ref("result", fact.node, fact.path)
    if fact.status == "ok":
        alive, dead = node.by_outlet.get(fact.outlet, node.normal)
        return Routes(alive, dead, fact.payload or itself, fact.error, None)
    if fact.status == "skipped":
        return Routes((), node.out, itself, None, fact.error)
    if fact.status == "cancelled":
        return Routes((), node.out, itself, None, None)
    if node.policy == "collect":
        return Routes((), node.out, itself, None, itself)
    alive, dead = node.rescue if node.policy == "branch" else node.by_outlet.get(node.ignored, node.normal)
    return Routes(alive, dead, itself, itself, None)


def decision_for_fact(plan: Plan, fact: TokenFact) -> Decision:
    """What a fact means. Only a result routes; the others change nothing but their own token."""
    if type(fact) is not NodeResult:
        return Decision(fact.node, fact.path, fact.at, fact)
    node = plan.nodes[fact.node]
    if fact.items is not None:
        return _fan_out(plan, node, fact, fact.items)
    effects: list[Effect] = []
    if fact.status == "failed":
        if node.policy == "halt":
            detected = fact.failure is not None and fact.failure.engine
            finish = FinishExecution("failed" if detected else "halted", fact.failure)
            return Decision(fact.node, fact.path, fact.at, fact, (finish,))
        if node.policy == "ignore" and node.fans_out:
            return _fan_out(plan, node, fact, 0)
        if node.policy == "collect" and not node.listed and fact.failure:
            effects.append(UncollectedFailure(fact.node, fact.failure))
    found = routes(node, fact)
    effects += activate_edges(plan, found.alive, found.payload, found.error)
    if found.dead:
        propagate_dead_edges(plan, effects, found.dead, found.cause)
    return Decision(fact.node, fact.path, fact.at, fact, tuple(effects))


def skip(plan: Plan, node: int, path: Path, error: Ref | None, at: int) -> Decision:
    """The end of a token that no live edge leads to. It leaves no fact: it follows from others."""
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
    """Live edges: to a token, to a join, or out of the item."""
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
    """Dead edges: skip what can no longer run, tell the joins that wait for others too."""
    queue: deque[tuple[int, Ref | None]] = deque((edge, error) for edge in edges)
    told: dict[int, dict[int, Ref | None]] = {}
    # A split that is skipped or failed has no items: its aggregator is then a join like any other.
    skipped = {plan.src[edge] for edge, _ in queue}
    while queue:
        edge, cause = queue.popleft()
        node = plan.nodes[plan.dst[edge]]
        if node.joins_items and node.split_of not in skipped:
            effects.append(CollectItem(edge, FAILED if cause else DEAD))
            continue
        if node.is_join or node.joins_items:
            causes = told.setdefault(node.index, {})
            causes[edge] = cause
            if len(causes) < len(node.in_edges) or (_may_be_given_up(node) and node.split not in skipped):
                continue
            del told[node.index]
            cause = next((causes[each] for each in node.in_edges if causes[each]), None)
        effects.append(SkipNode(node.index))
        skipped.add(node.index)
        queue.extend((each, cause) for each in node.out)
    for causes in told.values():
        effects += [ArriveAtJoin(edge, False, None, cause) for edge, cause in causes.items()]


def _may_be_given_up(node: NodePlan) -> bool:
    """A race whose timeout runs before anything has arrived: only the state knows whether it still waits."""
    return node.timeout is not None and node.timeout_from == "scope"
