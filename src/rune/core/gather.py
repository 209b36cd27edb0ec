"""Gather: what one item of a fan-out contributes to the list of its aggregator.

Derived from the results inside the item, so the state needs to keep no more than a mark per edge.
"""

from __future__ import annotations

import msgspec

from rune.core.context import Lookup
from rune.core.lineage import Path
from rune.core.plan import NodePlan, Plan
from rune.core.routing import routes
from rune.core.token import Ref


class Entry(msgspec.Struct, frozen=True):
    """The payloads that reached the aggregator, by predecessor in edge order, or an error instead."""

    payloads: tuple[tuple[int, Ref], ...]
    error: Ref | None


def item_entry(plan: Plan, aggregator: NodePlan, path: Path, item: int, results: Lookup) -> Entry:
    """The entry of one item; `path` is the scope of the aggregator."""
    scope = (*path, aggregator.split_of, item)
    payloads: dict[int, Ref] = {}
    error: Ref | None = None
    for edge in aggregator.in_edges:
        payload, cause = _edge(plan, edge, scope, results, set())
        if payload is not None:
            payloads[plan.src[edge]] = payload
        error = error or cause
    return Entry(tuple(payloads.items()), error)


def _edge(
    plan: Plan, edge: int, scope: Path, results: Lookup, skipped: set[int]
) -> tuple[Ref | None, Ref | None]:
    """The payload of a live edge, or the error that a dead one carries. `skipped` are known to carry none."""
    node = plan.nodes[plan.src[edge]]
    if node.index == scope[-2]:
        return Ref("item", node.index, scope), None
    result = results(node.index, scope)
    if result is not None:
        found = routes(node, result)
        return (found.payload, None) if edge in found.alive else (None, found.cause)
    for each in node.in_edges if node.index not in skipped else ():
        cause = _edge(plan, each, scope, results, skipped)[1]
        if cause is not None:
            return None, cause
    skipped.add(node.index)
    return None, None
