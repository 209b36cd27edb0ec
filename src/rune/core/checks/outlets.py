"""Each edge of a node with outlets leaves by one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rune.core import codes
from rune.core.checks.subject import Subject
from rune.core.definition import Node
from rune.core.jsontext import walk
from rune.core.nodetype import NodeType
from rune.core.problem import did_you_mean

_LIKE_OUTLETS = frozenset({"true", "false", "fallback", "error", "case_0", "case_1"})


def check_outlets(subject: Subject) -> tuple[str | None, ...]:
    """The outlet of each edge; None for error edges and where the source has no outlets."""
    found: list[str | None] = [None] * len(subject.definition.edges)
    for at in range(len(subject.graph.ids)):
        known = subject.known(at)
        if known is None or subject.is_trigger(at):
            continue
        node, kind = known
        outlets = kind.outlets(node.parameters)
        if outlets:
            _routed(subject, at, node, kind, outlets, found)
        else:
            _unlabelled(subject, at)
    return tuple(found)


def _routed(
    subject: Subject, at: int, node: Node, kind: NodeType, outlets: tuple[str, ...], found: list[str | None]
) -> None:
    edges = subject.definition.edges
    routes = kind.routes(node.parameters)
    leaving = {edges[each].id: each for each in subject.graph.out_edges[at] if not edges[each].is_error}
    for edge_id in routes:
        if edge_id not in leaving:
            subject.report(
                f"{subject.places.nodes[at]}.parameters{_where(node.parameters, edge_id)}",
                codes.UNKNOWN_EDGE,
                f"no edge `{edge_id}` leaves `{node.id}` on success",
                did_you_mean(edge_id, leaving),
            )
    for edge_id, each in leaving.items():
        found[each] = _outlet(subject, each, routes.get(edge_id), outlets)


def _outlet(subject: Subject, at: int, route: str | None, outlets: tuple[str, ...]) -> str | None:
    edge, place = subject.definition.edges[at], subject.places.edges[at]
    if route is not None:
        if edge.label in outlets and edge.label != route:
            message = f"edge `{edge.id}` is labelled `{edge.label}`, but `{edge.src}` takes it for `{route}`"
            subject.report(f"{place}.label", codes.CONFLICT, message, "remove the label")
        return route
    if edge.label in outlets:
        return edge.label
    names = ", ".join(f"`{each}`" for each in outlets)
    if edge.label is None:
        message = f"edge `{edge.id}` does not say by which outlet it leaves `{edge.src}`"
        subject.report(place, codes.NO_OUTLET, message, f"label it with one of {names}")
    else:
        message = f"`{edge.src}` has no outlet `{edge.label}`"
        subject.report(f"{place}.label", codes.UNKNOWN_OUTLET, message, did_you_mean(edge.label, outlets))
    return None


def _unlabelled(subject: Subject, at: int) -> None:
    for each in subject.graph.out_edges[at]:
        edge = subject.definition.edges[each]
        if edge.label in _LIKE_OUTLETS and not edge.is_error:
            subject.warn(
                f"{subject.places.edges[each]}.label",
                codes.UNUSED_LABEL,
                f"`{edge.src}` has no outlets, so the label `{edge.label}` of edge `{edge.id}` is only a "
                f"caption",
                "set `is_error: true` for an error edge"
                if edge.label == "error"
                else "put a `conditional` or `switch` before",
            )


def _where(parameters: Mapping[str, Any], edge_id: str) -> str:
    return next((f".{path}" for path, part in walk(dict(parameters)) if part == edge_id), "")
