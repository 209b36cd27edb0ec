"""Routing: which edges a result makes alive, and which nodes its dead edges skip.

Every edge of a scope is resolved exactly once. Dead edges are followed breadth first: a join whose edges all die in one
decision is skipped by it, any other join receives dead arrivals.
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
    Effect,
    EmitToken,
    SkipNode,
)
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Ref
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
            cause = next((causes[in_edge] for in_edge in node.in_edges if causes[in_edge]), None)
        effects.append(SkipNode(node.index))
        skipped.add(node.index)
        queue.extend((out_edge, cause) for out_edge in node.out)
    for causes in reached.values():
        effects += [ArriveAtJoin(edge, False, None, cause) for edge, cause in causes.items()]


def _may_expire(node: NodePlan) -> bool:
    """Return whether the join can expire before its first arrival: only the state knows whether it still waits."""
    return node.timeout is not None and node.timeout_from == "scope"
