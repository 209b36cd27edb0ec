"""Ids are unique, what is named exists."""

from __future__ import annotations

from collections.abc import Iterable

from rune.core import codes
from rune.core.checks.subject import Subject
from rune.core.expr.names import ROOTS
from rune.core.problem import did_you_mean


def check_identity(subject: Subject) -> None:
    """Unique ids, edges between known nodes, no edge from a node to itself, known node types."""
    nodes, edges = subject.definition.nodes, subject.definition.edges
    _unique(
        subject, "node", ((each.id, place) for each, place in zip(nodes, subject.places.nodes, strict=True))
    )
    _unique(
        subject, "edge", ((each.id, place) for each, place in zip(edges, subject.places.edges, strict=True))
    )
    _ends(subject)
    for at, node in enumerate(nodes):
        if node.id in ROOTS and not subject.is_trigger(at):
            subject.warn(
                f"{subject.places.nodes[at]}.id",
                codes.RESERVED_NAME,
                f"`${node.id}` has a meaning of its own in expressions, so the output of `{node.id}` cannot "
                f"be read by it",
                f"call the node `{node.id}_1`, for example",
            )


def _unique(subject: Subject, noun: str, ids: Iterable[tuple[str, str]]) -> None:
    first: dict[str, str] = {}
    for each, place in ids:
        if each and first.setdefault(each, place) != place:
            message = f"two {noun}s are called `{each}`: here and at {first[each]}"
            subject.report(f"{place}.id", codes.DUPLICATE_ID, message, "give each an id of its own")


def _ends(subject: Subject) -> None:
    graph = subject.graph
    for at, edge in enumerate(subject.definition.edges):
        place = subject.places.edges[at]
        written = place.startswith("edges")
        for name, end, found in (("src", edge.src, graph.src[at]), ("dst", edge.dst, graph.dst[at])):
            if end and found < 0:
                path = f"{place}.{name}" if written else place
                subject.report(
                    path, codes.UNKNOWN_NODE, f"no node is called `{end}`", did_you_mean(end, graph.index)
                )
        if edge.src and edge.src == edge.dst:
            subject.report(
                place,
                codes.SELF_LOOP,
                f"edge `{edge.id}` leads from `{edge.src}` to itself",
                "a workflow has no loops; to go over a list use `split`, to try again use `retry`",
            )
