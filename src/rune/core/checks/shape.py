"""The graph as a whole: no cycle, nothing out of reach, a way in and a way out."""

from __future__ import annotations

from rune.core import codes
from rune.core.checks.subject import Subject
from rune.core.graph import find_cycle, reachable


def check_shape(subject: Subject) -> None:
    """No cycle, every node reachable from an entry, at least one exit, triggers only at entries."""
    graph, places = subject.graph, subject.places
    cycle = find_cycle(graph)
    if cycle:
        first = graph.index[cycle[0]]
        subject.report(
            places.nodes[first],
            codes.CYCLE,
            f"the edges form a cycle: {' → '.join((*cycle, cycle[0]))}",
            "remove one of its edges; to go over a list use `split`, to try again use `retry`",
        )
        if not graph.exits:
            subject.report("edges", codes.NO_EXIT, "every node has out-edges, so the workflow has no end")
        found = reachable(graph, graph.entries)
        for at, node in enumerate(graph.ids):
            if at not in found and node not in cycle:
                message = f"no path from an entry leads to `{node}`"
                subject.report(
                    places.nodes[at], codes.UNREACHABLE_NODE, message, "an entry is a node without in-edges"
                )
    for at, node in enumerate(graph.ids):
        if subject.is_trigger(at) and graph.in_edges[at]:
            edge = graph.in_edges[at][0]
            subject.report(
                places.edges[edge],
                codes.TRIGGER_NOT_ENTRY,
                f"`{node}` is a trigger, but edge `{subject.definition.edges[edge].id}` leads to it",
                "a trigger starts an execution: remove the edge, or use `noop`",
            )
