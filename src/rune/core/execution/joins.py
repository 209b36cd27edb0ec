"""Joins: when a barrier opens, with which token, and what an aggregator receives of each item."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rune.core.execution.fact import NodeResult
from rune.core.execution.routing import routes
from rune.core.execution.token import Arrived, Path, Ref, Token, TokenPurpose
from rune.core.node_type import Join
from rune.core.plan.model import NodePlan, Plan

Lookup = Callable[[int, Path], NodeResult | None]
"""Returns the result of a token, or None."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """How one edge into a join was resolved. The value itself is in the result of the predecessor."""

    alive: bool
    payload: Ref | None
    error: Ref | None
    at: int


class Barrier(msgspec.Struct):
    """The resolved edges of one join in one scope."""

    arrivals: dict[int, Arrival] = {}
    opened: bool = False

    @property
    def first(self) -> int:
        return min(arrival.at for arrival in self.arrivals.values())

    @property
    def latest(self) -> int:
        return max(arrival.at for arrival in self.arrivals.values())

    def live(self) -> list[int]:
        return [edge for edge, arrival in self.arrivals.items() if arrival.alive]


def join_verdict(opens: Join, parties: int, live: int, arrived: int) -> TokenPurpose | None:
    """Return the purpose of the token that opens a join, or None while it waits."""
    missing = parties - arrived
    if live == 0:
        return TokenPurpose.SKIP if missing == 0 else None
    if opens == "all":
        return TokenPurpose.RUN if missing == 0 else None
    needed = 1 if opens == "any" else opens
    if live >= needed:
        return TokenPurpose.RUN
    return TokenPurpose.UNREACHABLE if live + missing < needed else None


def opened_token(
    plan: Plan, node: NodePlan, barrier: Barrier, path: tuple[int, ...], fate: TokenPurpose
) -> Token:
    """Return the token that an opening join emits."""
    resolved = [edge for edge in node.in_edges if edge in barrier.arrivals]
    live = [edge for edge in resolved if barrier.arrivals[edge].alive]
    # A join that runs absorbs the errors of its dead edges; a skipped join passes on the first of them.
    considered = resolved if fate is TokenPurpose.SKIP else live
    error = next((barrier.arrivals[edge].error for edge in considered if barrier.arrivals[edge].error), None)
    arrived = tuple(Arrived(edge, barrier.arrivals[edge].payload or Ref("start")) for edge in live)
    payload = joined_payload(plan, node, path, arrived)
    last = max((barrier.arrivals[edge].at, node.in_edges.index(edge)) for edge in resolved)[1]
    return Token(node.index, path, payload, error, arrived, fate, at=barrier.latest, last=last)


def joined_payload(plan: Plan, node: NodePlan, path: tuple[int, ...], arrived: tuple[Arrived, ...]) -> Ref:
    """Return what `$json` is at a join: the payload of a single live predecessor, or an object by predecessor."""
    if arrived and len({plan.src[each.edge] for each in arrived}) == 1:
        return arrived[0].payload
    return Ref("entered", node.index, path)


class Entry(msgspec.Struct, frozen=True):
    """The payloads that reached the aggregator, by predecessor in edge order, or an error instead."""

    payloads: tuple[tuple[int, Ref], ...]
    error: Ref | None


def item_entry(plan: Plan, aggregator: NodePlan, path: Path, item: int, results: Lookup) -> Entry:
    """Return the entry of one item; `path` is the scope of the aggregator."""
    scope = (*path, aggregator.split_of, item)
    payloads: dict[int, Ref] = {}
    error: Ref | None = None
    for edge in aggregator.in_edges:
        payload, cause = _resolve_edge(plan, edge, scope, results, set())
        if payload is not None:
            payloads[plan.src[edge]] = payload
        error = error or cause
    return Entry(tuple(payloads.items()), error)


def _resolve_edge(
    plan: Plan, edge: int, scope: Path, results: Lookup, skipped: set[int]
) -> tuple[Ref | None, Ref | None]:
    """Return the payload of a live edge, or the error that a dead one carries: the first of those that entered the
    skipped nodes before it. Nodes in `skipped` carry none. A chain of skipped nodes is longer than a stack."""
    pending = [edge]
    first = True
    while pending:
        current = pending.pop()
        node = plan.nodes[plan.src[current]]
        if node.index == scope[-2]:
            if first:
                return Ref("item", node.index, scope), None
            continue
        if node.index in skipped:
            continue
        result = results(node.index, scope)
        if result is not None:
            resolved = routes(node, result)
            if first:
                return (resolved.payload, None) if current in resolved.alive else (None, resolved.cause)
            if current not in resolved.alive and resolved.cause is not None:
                return None, resolved.cause
        else:
            skipped.add(node.index)
            pending += reversed(node.in_edges)
        first = False
    return None, None
