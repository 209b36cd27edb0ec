"""Barriers: a join counts identities, never arrivals."""

from __future__ import annotations

import msgspec

from rune.core.nodetype import Join
from rune.core.plan import NodePlan, Plan
from rune.core.token import Arrived, Fate, Ref, Token


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """How one edge into a join was resolved. No value is kept: that is the predecessor's result."""

    alive: bool
    payload: Ref | None
    error: Ref | None
    at: int


class Barrier(msgspec.Struct):
    """The parties of one join in one scope that have arrived so far."""

    arrivals: dict[int, Arrival] = {}
    opened: bool = False

    @property
    def first(self) -> int:
        return min(each.at for each in self.arrivals.values())

    @property
    def latest(self) -> int:
        return max(each.at for each in self.arrivals.values())

    def live(self) -> list[int]:
        return [edge for edge, each in self.arrivals.items() if each.alive]


def verdict(opens: Join, parties: int, live: int, arrived: int) -> Fate | None:
    """Whether a join opens now, and for what: None means it goes on waiting."""
    missing = parties - arrived
    if live == 0:
        return Fate.SKIP if missing == 0 else None
    if opens == "all":
        return Fate.RUN if missing == 0 else None
    needed = 1 if opens == "any" else opens
    if live >= needed:
        return Fate.RUN
    return Fate.UNREACHABLE if live + missing < needed else None


def opened_token(plan: Plan, node: NodePlan, barrier: Barrier, path: tuple[int, ...], fate: Fate) -> Token:
    """The one ordinary token that an opening emits."""
    seen = [edge for edge in node.in_edges if edge in barrier.arrivals]
    live = [edge for edge in seen if barrier.arrivals[edge].alive]
    # A join that runs absorbs the errors of its dead edges; one that is skipped passes the first of them on.
    heard = seen if fate is Fate.SKIP else live
    error = next((barrier.arrivals[edge].error for edge in heard if barrier.arrivals[edge].error), None)
    arrived = tuple(Arrived(edge, barrier.arrivals[edge].payload or Ref("start")) for edge in live)
    payload = joined_payload(plan, node, path, arrived)
    return Token(node.index, path, payload, error, arrived, fate, at=barrier.latest)


def joined_payload(plan: Plan, node: NodePlan, path: tuple[int, ...], arrived: tuple[Arrived, ...]) -> Ref:
    """What `$json` is at a join: the one live payload, or an object by predecessor."""
    if arrived and len({plan.src[each.edge] for each in arrived}) == 1:
        return arrived[0].payload
    return Ref("entered", node.index, path)
