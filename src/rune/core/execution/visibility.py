"""Which outputs the expressions of a token can see, and where each value is stored."""

from __future__ import annotations

from collections.abc import Callable

from rune.core.execution.fact import NodeResult
from rune.core.execution.token import START, Path, Ref, Token
from rune.core.plan.model import Plan

Lookup = Callable[[int, Path], NodeResult | None]
"""Returns the result of a token, or None."""


def reference(plan: Plan, token: Token, root: str) -> Ref | None:
    """Return the reference that a root denotes for this token; None if it is not a stored value."""
    if root in ("$trigger", "$input"):
        return START
    if root == "$json":
        return token.payload
    if root == "$error":
        return token.error
    if root == "$item":
        return Ref("item", token.path[-2], token.path) if token.path else None
    index = plan.index.get(root[1:])
    return None if index is None else result_ref(plan, index, token.path)


def result_ref(plan: Plan, node: int, path: Path) -> Ref:
    """Return the reference to the output of a node in this scope, or in the enclosing scope that holds the node."""
    if node in plan.triggers:
        return START
    return Ref("result", node, path[: 2 * plan.nodes[node].depth])


def visible(plan: Plan, token: Token, results: Lookup) -> frozenset[int] | None:
    """Return the nodes whose output this token may see; None if no race is upstream and all ancestors are visible.

    After a race only the ancestors of the edges that opened it are visible, whatever the losers do later.
    """
    if not plan.nodes[token.node].raced:
        return None
    seen: set[int] = set()
    pending = [plan.src[edge] for edge in _live_routes(plan, token.node, token, results)]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if plan.nodes[node].joins_items:
            pending.append(plan.nodes[node].split_of)
        else:
            pending += [plan.src[edge] for edge in _live_routes(plan, node, token, results)]
    return frozenset(seen)


def _live_routes(plan: Plan, index: int, token: Token, results: Lookup) -> tuple[int, ...]:
    node = plan.nodes[index]
    if not node.is_join or (node.opens == "all" and (node.timeout is None or index == token.node)):
        return node.in_edges
    if index == token.node:
        return tuple(each.edge for each in token.arrived)
    result = results(index, token.path[: 2 * node.depth])
    if result is None or result.status == "skipped" or (node.opens == "all" and not _has_expired(result)):
        return node.in_edges
    return tuple(each.edge for each in result.arrived)


def _has_expired(result: NodeResult) -> bool:
    return result.failure is not None and bool(result.failure.details.get("expired"))
