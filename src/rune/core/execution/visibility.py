"""Context: what the expressions of a token may see, and where each value lives."""

from __future__ import annotations

from collections.abc import Callable

from rune.core.execution.fact import NodeResult
from rune.core.execution.token import START, Path, Ref, Token
from rune.core.plan.model import Plan

Lookup = Callable[[int, Path], NodeResult | None]
"""The result of a token, or None where there is none."""


def reference(plan: Plan, token: Token, root: str) -> Ref | None:
    """Where the value behind `$root` lives for this token; None for what is no stored value."""
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
    """The output of a node as seen from a scope: its own scope is this one or one around it."""
    if node in plan.triggers:
        return START
    return Ref("result", node, path[: 2 * plan.nodes[node].depth])


def visible(plan: Plan, token: Token, results: Lookup) -> frozenset[int] | None:
    """The nodes whose output this token may see; None where no race lies upstream and every ancestor counts.

    Behind a race only what led to the parties that opened it is there, whatever the losers do later.
    """
    if not plan.nodes[token.node].raced:
        return None
    seen: set[int] = set()
    ways = [plan.src[edge] for edge in _live_routes(plan, token.node, token, results)]
    while ways:
        node = ways.pop()
        if node in seen:
            continue
        seen.add(node)
        if plan.nodes[node].joins_items:
            ways.append(plan.nodes[node].split_of)
        else:
            ways += [plan.src[edge] for edge in _live_routes(plan, node, token, results)]
    return frozenset(seen)


def _live_routes(plan: Plan, index: int, token: Token, results: Lookup) -> tuple[int, ...]:
    node = plan.nodes[index]
    if not node.is_join or (node.opens == "all" and (node.timeout is None or index == token.node)):
        return node.in_edges
    if index == token.node:
        return tuple(each.edge for each in token.arrived)
    result = results(index, token.path[: 2 * node.depth])
    if result is None or result.status == "skipped" or (node.opens == "all" and not _was_abandoned(result)):
        return node.in_edges
    return tuple(each.edge for each in result.arrived)


def _was_abandoned(result: NodeResult) -> bool:
    return result.failure is not None and bool(result.failure.details.get("expired"))
