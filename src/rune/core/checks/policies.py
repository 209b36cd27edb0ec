"""Error policies, joins and fields that do nothing where they stand."""

from __future__ import annotations

from rune.core import codes
from rune.core.checks.subject import Subject
from rune.core.definition import Node
from rune.core.dominators import ROOT, Dominators
from rune.core.nodetype import NodeType
from rune.core.problem import did_you_mean


def check_policies(subject: Subject) -> None:
    """Error edges exist and are followed; `join` and the like are where they mean something."""
    for at, node in enumerate(subject.definition.nodes):
        _error_edge(subject, at, node)
        known = subject.known(at)
        if known is not None:
            _join(subject, at, *known)
            _without_effect(subject, at, *known)
    for at, edge in enumerate(subject.definition.edges):
        if edge.is_error and subject.graph.src[at] >= 0 and not _followed(subject, at):
            subject.warn(
                subject.places.edges[at],
                codes.UNUSED_ERROR_EDGE,
                f"error edge `{edge.id}` is never followed: `{edge.src}` does not branch to it",
                f'give `{edge.src}` the policy `{{"type": "branch", "error_edge": "{edge.id}"}}`',
            )


def _error_edge(subject: Subject, at: int, node: Node) -> None:
    if node.error is None or node.error.error_edge is None:
        return
    edges = subject.definition.edges
    leaving = [edges[each].id for each in subject.graph.out_edges[at]]
    wanted = node.error.error_edge
    if wanted not in leaving:
        elsewhere = next((each for each in edges if each.id == wanted), None)
        message = f"no edge `{wanted}` leaves `{node.id}`"
        if elsewhere is not None:
            message += f": it leads from `{elsewhere.src}` to `{elsewhere.dst}`"
        path = f"{subject.places.nodes[at]}.error.error_edge"
        subject.report(path, codes.UNKNOWN_EDGE, message, did_you_mean(wanted, leaving))


def _followed(subject: Subject, edge: int) -> bool:
    policy = subject.definition.nodes[subject.graph.src[edge]].error
    return (
        policy is not None
        and policy.type == "branch"
        and policy.error_edge == subject.definition.edges[edge].id
    )


def _join(subject: Subject, at: int, node: Node, kind: NodeType) -> None:
    if node.join is None:
        return
    path = f"{subject.places.nodes[at]}.join"
    opens = kind.join_rule(node.parameters).opens
    chosen = opens != kind.join_rule({}).opens
    if opens != node.join and (chosen or kind.joins_items):
        message = f"`join: {node.join}` contradicts how `{node.id}` waits"
        hint = "it always waits for every item" if kind.joins_items else "remove `join`"
        subject.report(path, codes.JOIN_CONFLICT, message, hint)
    elif len(subject.graph.in_edges[at]) < 2:
        message = f"`join` has no effect: `{node.id}` has fewer than two in-edges"
        subject.warn(path, codes.NO_EFFECT, message)


def _without_effect(subject: Subject, at: int, node: Node, kind: NodeType) -> None:
    place = subject.places.nodes[at]
    trigger = subject.is_trigger(at)
    if node.at_most_once and (trigger or not kind.effectful(node.parameters)):
        message = f"`at_most_once` has no effect: `{node.id}` does nothing outside that could happen twice"
        subject.warn(f"{place}.at_most_once", codes.NO_EFFECT, message)
    if node.credentials is not None and not kind.credentials:
        subject.warn(f"{place}.credentials", codes.NO_EFFECT, f"`{kind.name}` uses no credentials")
    if trigger and (node.timeout is not None or node.retry is not None):
        name = "timeout" if node.timeout is not None else "retry"
        message = f"`{name}` has no effect: a trigger passes on the start payload and does not run"
        subject.warn(f"{place}.{name}", codes.NO_EFFECT, message)
    rule = kind.join_rule(node.parameters)
    if rule.cancel_losers and rule.opens == "all":
        message = "`cancel_losers` has no effect: who waits for all has no losers"
        subject.warn(f"{place}.parameters.cancel_losers", codes.NO_EFFECT, message)


def check_joins(subject: Subject, dominators: Dominators) -> None:
    """Warn of nodes that nothing can start, and of joins that wait for more than can come."""
    graph = subject.graph
    runs = [True] * len(graph.ids)
    for at in graph.order:
        edges = graph.in_edges[at]
        live = [
            edge
            for edge in edges
            if runs[graph.src[edge]]
            and (not subject.definition.edges[edge].is_error or _followed(subject, edge))
        ]
        if edges and not live:
            runs[at] = False
            if any(runs[source] for source in graph.predecessors(at)):
                message = f"`{graph.ids[at]}` never runs: only error edges that are not followed lead to it"
                subject.warn(subject.places.nodes[at], codes.NEVER_RUNS, message)
        known = subject.known(at)
        if live and known is not None and known[1].merges:
            _at_least(subject, at, known, live, dominators)


def _at_least(
    subject: Subject, at: int, known: tuple[Node, NodeType], live: list[int], dominators: Dominators
) -> None:
    node, kind = known
    needed = kind.join_rule(node.parameters).opens
    if not isinstance(needed, int):
        return
    most = _most_live(live, dominators)
    if most < needed:
        subject.warn(
            f"{subject.places.nodes[at]}.parameters.wait_mode",
            codes.JOIN_NEVER_OPENS,
            f"`{node.id}` waits for {needed} arrivals, but at most {most} of its {len(live)} in-edges can "
            f"be alive",
            f"use `at_least: {most}` or fewer",
        )


def _most_live(live: list[int], dominators: Dominators) -> int:
    """An upper bound of how many of these edges can be alive together: what parts at the outlets of the node
    that all of them lead through excludes each other."""
    sources = [dominators.graph.src[edge] for edge in live]
    router = dominators.common(sources)
    if router == ROOT:
        return len(live)
    count: dict[str | None, int] = {}
    for edge, source in zip(live, sources, strict=True):
        exits = {dominators.exit(edge)} if source == router else dominators.exits(router, source)
        for each in exits:
            count[each] = count.get(each, 0) + 1
    return max(count.values())
