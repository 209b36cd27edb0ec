"""The checks of a definition: ids, outlets, outputs, error policies, joins and the shape of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from rune.core.definition import problems
from rune.core.definition.model import Definition, Node, Pin
from rune.core.definition.parser import SourceLocations
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.definition.strict_json import walk
from rune.core.expr.names import ROOTS
from rune.core.node_type import NodeType
from rune.core.plan.graph import ROOT, Dominators, Graph, find_cycle, reachable

_OUTLET_SYNONYMS = frozenset({"true", "false", "fallback", "error", "case_0", "case_1"})


class ValidationInput(msgspec.Struct):
    """A definition that is being validated, with the problems found so far."""

    definition: Definition
    places: SourceLocations
    graph: Graph
    types: tuple[NodeType | None, ...]
    # By node: the type is known and its parameters are valid, so its declaration can be evaluated.
    sound: list[bool]
    problems: list[Problem]

    def report(
        self,
        path: str,
        code: str,
        message: str,
        hint: str = "",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        self.problems.append(Problem(path, code, message, hint, severity))

    def warn(self, path: str, code: str, message: str, hint: str = "") -> None:
        """Report a problem that does not make the document invalid."""
        self.report(path, code, message, hint, "warning")

    def is_trigger(self, at: int) -> bool:
        """Return whether this node passes on the start payload instead of running."""
        kind = self.types[at]
        return self.definition.nodes[at].trigger or (kind is not None and kind.trigger)

    def known(self, at: int) -> tuple[Node, NodeType] | None:
        """Return the node and its type, if the declaration of the type can be evaluated."""
        kind = self.types[at]
        return (self.definition.nodes[at], kind) if kind is not None and self.sound[at] else None


def check_identity(subject: ValidationInput) -> None:
    """Check that ids are unique and not reserved, and that edges connect two different known nodes."""
    nodes, edges = subject.definition.nodes, subject.definition.edges
    _check_unique(
        subject, "node", ((each.id, place) for each, place in zip(nodes, subject.places.nodes, strict=True))
    )
    _check_unique(
        subject, "edge", ((each.id, place) for each, place in zip(edges, subject.places.edges, strict=True))
    )
    _check_ends(subject)
    for at, node in enumerate(nodes):
        if node.id in ROOTS and not subject.is_trigger(at):
            subject.warn(
                f"{subject.places.nodes[at]}.id",
                problems.RESERVED_NAME,
                f"`${node.id}` is a reserved name, so expressions cannot read the output of `{node.id}` by it",
                f"rename the node, for example to `{node.id}_1`",
            )


def _check_unique(subject: ValidationInput, noun: str, ids: Iterable[tuple[str, str]]) -> None:
    first: dict[str, str] = {}
    for each, place in ids:
        if each and first.setdefault(each, place) != place:
            message = f"two {noun}s are called `{each}`: here and at {first[each]}"
            subject.report(f"{place}.id", problems.DUPLICATE_ID, message, "give each a unique id")


def _check_ends(subject: ValidationInput) -> None:
    graph = subject.graph
    for at, edge in enumerate(subject.definition.edges):
        place = subject.places.edges[at]
        written = place.startswith("edges")
        for name, end, found in (("src", edge.src, graph.src[at]), ("dst", edge.dst, graph.dst[at])):
            if end and found < 0:
                path = f"{place}.{name}" if written else place
                subject.report(
                    path, problems.UNKNOWN_NODE, f"no node is called `{end}`", did_you_mean(end, graph.index)
                )
        if edge.src and edge.src == edge.dst:
            subject.report(
                place,
                problems.SELF_LOOP,
                f"edge `{edge.id}` leads from `{edge.src}` to itself",
                "a workflow has no loops; use `split` to iterate over a list, `retry` to repeat a failed node",
            )


def check_outlets(subject: ValidationInput) -> tuple[str | None, ...]:
    """Return the outlet of each edge; None for error edges and for sources without outlets."""
    found: list[str | None] = [None] * len(subject.definition.edges)
    for at in range(len(subject.graph.ids)):
        known = subject.known(at)
        if known is None or subject.is_trigger(at):
            continue
        node, kind = known
        outlets = kind.outlets(node.parameters)
        if outlets:
            _check_labels(subject, at, node, kind, outlets, found)
        else:
            _warn_unused_labels(subject, at)
    return tuple(found)


def _check_labels(
    subject: ValidationInput,
    at: int,
    node: Node,
    kind: NodeType,
    outlets: tuple[str, ...],
    found: list[str | None],
) -> None:
    edges = subject.definition.edges
    routes = kind.routes(node.parameters)
    leaving = {edges[each].id: each for each in subject.graph.out_edges[at] if not edges[each].is_error}
    for edge_id in routes:
        if edge_id not in leaving:
            subject.report(
                f"{subject.places.nodes[at]}.parameters{_parameter_path(node.parameters, edge_id)}",
                problems.UNKNOWN_EDGE,
                f"no edge `{edge_id}` leaves `{node.id}` on success",
                did_you_mean(edge_id, leaving),
            )
    for edge_id, each in leaving.items():
        found[each] = _outlet(subject, each, routes.get(edge_id), outlets)


def _outlet(subject: ValidationInput, at: int, route: str | None, outlets: tuple[str, ...]) -> str | None:
    edge, place = subject.definition.edges[at], subject.places.edges[at]
    if route is not None:
        if edge.label in outlets and edge.label != route:
            message = f"edge `{edge.id}` is labelled `{edge.label}`, but `{edge.src}` uses it for `{route}`"
            subject.report(f"{place}.label", problems.CONFLICT, message, "remove the label")
        return route
    if edge.label in outlets:
        return edge.label
    names = ", ".join(f"`{each}`" for each in outlets)
    if edge.label is None:
        message = f"edge `{edge.id}` has no label that selects an outlet of `{edge.src}`"
        subject.report(place, problems.NO_OUTLET, message, f"label it with one of {names}")
    else:
        message = f"`{edge.src}` has no outlet `{edge.label}`"
        subject.report(f"{place}.label", problems.UNKNOWN_OUTLET, message, did_you_mean(edge.label, outlets))
    return None


def _warn_unused_labels(subject: ValidationInput, at: int) -> None:
    for each in subject.graph.out_edges[at]:
        edge = subject.definition.edges[each]
        if edge.label in _OUTLET_SYNONYMS and not edge.is_error:
            subject.warn(
                f"{subject.places.edges[each]}.label",
                problems.UNUSED_LABEL,
                f"`{edge.src}` has no outlets, so the label `{edge.label}` of edge `{edge.id}` has no effect",
                "set `is_error: true` for an error edge"
                if edge.label == "error"
                else "put a `conditional` or `switch` before",
            )


def _parameter_path(parameters: Mapping[str, Any], edge_id: str) -> str:
    return next((f".{path}" for path, part in walk(dict(parameters)) if part == edge_id), "")


def check_outputs(subject: ValidationInput, dominators: Dominators) -> None:
    """Report each node that sets the output although an earlier node may have set it.

    Two nodes are exclusive if their nearest common dominator leads to them by different outlets. A farther dominator
    cannot separate them: both are reached through the nearest one.
    """
    setters = [at for at, kind in enumerate(subject.types) if kind is not None and kind.sets_output]
    if len(setters) < 2:
        return
    clashes: dict[int, int] = {}
    below: dict[int, list[tuple[int, int]]] = {}
    chosen = set(setters)
    for setter in setters:
        for dominator, child in dominators.above(setter):
            if dominator in chosen:
                _add_clash(clashes, setter, dominator)
            below.setdefault(dominator, []).append((child, setter))
    for router, reached in below.items():
        # The outlets of a node whose type or parameters are wrong are unknown: they may well separate the two.
        if router == ROOT or subject.sound[router]:
            _find_clashes(dominators, router, reached, clashes)
    for later, earlier in sorted(clashes.items()):
        names = subject.graph.ids
        subject.report(
            subject.places.nodes[later],
            problems.TWO_OUTPUTS,
            f"`{names[later]}` and `{names[earlier]}` can both run, but an execution has one output",
            "lead to them from different outlets of one `conditional` or `switch`, or keep one of them",
        )


def _find_clashes(
    dominators: Dominators, router: int, reached: list[tuple[int, int]], clashes: dict[int, int]
) -> None:
    taken: dict[str | None, tuple[int, int]] = {}
    for child, setter in reached:
        for exit_ in {None} if router == ROOT else dominators.exits(router, setter):
            other_child, other = taken.setdefault(exit_, (child, setter))
            if other_child != child:
                _add_clash(clashes, setter, other)


def _add_clash(clashes: dict[int, int], one: int, other: int) -> None:
    later, earlier = max(one, other), min(one, other)
    clashes[later] = min(clashes.get(later, earlier), earlier)


def check_policies(subject: ValidationInput) -> None:
    """Check that error edges exist and are followed, and that `join` and similar fields have an effect."""
    for at, node in enumerate(subject.definition.nodes):
        _check_error_edge(subject, at, node)
        known = subject.known(at)
        if known is not None:
            _check_join(subject, at, *known)
            _warn_no_effect(subject, at, *known)
    for at, edge in enumerate(subject.definition.edges):
        if edge.is_error and subject.graph.src[at] >= 0 and not _is_followed(subject, at):
            subject.warn(
                subject.places.edges[at],
                problems.UNUSED_ERROR_EDGE,
                f"error edge `{edge.id}` is never followed: `{edge.src}` does not branch to it",
                f'give `{edge.src}` the policy `{{"type": "branch", "error_edge": "{edge.id}"}}`',
            )


def _check_error_edge(subject: ValidationInput, at: int, node: Node) -> None:
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
        subject.report(path, problems.UNKNOWN_EDGE, message, did_you_mean(wanted, leaving))


def _is_followed(subject: ValidationInput, edge: int) -> bool:
    policy = subject.definition.nodes[subject.graph.src[edge]].error
    return (
        policy is not None
        and policy.type == "branch"
        and policy.error_edge == subject.definition.edges[edge].id
    )


def _check_join(subject: ValidationInput, at: int, node: Node, kind: NodeType) -> None:
    if node.join is None:
        return
    path = f"{subject.places.nodes[at]}.join"
    opens = kind.join_rule(node.parameters).opens
    chosen = opens != kind.join_rule({}).opens
    if opens != node.join and (chosen or kind.joins_items):
        message = f"`join: {node.join}` contradicts how `{node.id}` waits"
        hint = "it always waits for every item" if kind.joins_items else "remove `join`"
        subject.report(path, problems.JOIN_CONFLICT, message, hint)
    elif len(subject.graph.in_edges[at]) < 2:
        message = f"`join` has no effect: `{node.id}` has fewer than two in-edges"
        subject.warn(path, problems.NO_EFFECT, message)


def _warn_no_effect(subject: ValidationInput, at: int, node: Node, kind: NodeType) -> None:
    place = subject.places.nodes[at]
    trigger = subject.is_trigger(at)
    if node.at_most_once and (trigger or not kind.effectful(node.parameters)):
        message = f"`at_most_once` has no effect: `{node.id}` has no external effect"
        subject.warn(f"{place}.at_most_once", problems.NO_EFFECT, message)
    if node.credentials is not None and not kind.credentials:
        subject.warn(f"{place}.credentials", problems.NO_EFFECT, f"`{kind.name}` uses no credentials")
    if trigger and (node.timeout is not None or node.retry is not None):
        name = "timeout" if node.timeout is not None else "retry"
        message = f"`{name}` has no effect: a trigger passes on the start payload and does not run"
        subject.warn(f"{place}.{name}", problems.NO_EFFECT, message)
    elif node.timeout is not None and kind.waits_for_time(node.parameters):
        message = f"`timeout` has no effect: `{node.id}` ends at the time that it waits for"
        subject.warn(f"{place}.timeout", problems.NO_EFFECT, message)
    elif node.timeout is not None and (kind.merges or kind.joins_items):
        message = f"`timeout` has no effect: how long `{node.id}` waits for its edges is `parameters.timeout`"
        subject.warn(f"{place}.timeout", problems.NO_EFFECT, message)
    rule = kind.join_rule(node.parameters)
    if rule.cancel_losers and rule.opens == "all":
        message = "`cancel_losers` has no effect: a join that waits for all edges has no losers"
        subject.warn(f"{place}.parameters.cancel_losers", problems.NO_EFFECT, message)


def check_pins(subject: ValidationInput) -> None:
    """Check that pinned nodes can have the output that is given, and warn that they are not called."""
    for at, node in enumerate(subject.definition.nodes):
        known = subject.known(at)
        if node.pin is None or known is None:
            continue
        place = f"{subject.places.nodes[at]}.pin"
        problem = _pin_problem(subject, place, at, node.pin, known[1])
        if problem is None:
            subject.warn(place, problems.PINNED, f"the output of `{node.id}` is pinned: it is not called")
        else:
            subject.problems.append(problem)


def _pin_problem(subject: ValidationInput, place: str, at: int, pin: Pin, kind: NodeType) -> Problem | None:
    node = subject.definition.nodes[at]
    outlets = kind.outlets(node.parameters)
    if subject.is_trigger(at):
        message = f"`{node.id}` is a trigger: its output is the input of the execution"
        return Problem(place, problems.WRONG_VALUE, message, "remove the pin and start with this input")
    if subject.definition.settings.executor != "rune":
        message = "another engine runs this workflow, and calls every node"
        return Problem(place, problems.WRONG_VALUE, message, "remove `settings.executor`")
    if kind.fans_out and not isinstance(pin.output, list):
        message = f"`{node.id}` fans out: its output is the list of its items"
        return Problem(f"{place}.output", problems.WRONG_TYPE, message)
    if pin.outlet is None and outlets:
        message = f"`{node.id}` leaves by an outlet: say which one"
        return Problem(f"{place}.outlet", problems.MISSING_FIELD, message, did_you_mean("", outlets))
    if pin.outlet is not None and pin.outlet not in outlets:
        message = f"`{node.id}` has no outlet `{pin.outlet}`"
        return Problem(f"{place}.outlet", problems.UNKNOWN_OUTLET, message, did_you_mean(pin.outlet, outlets))
    return None


def check_joins(subject: ValidationInput, dominators: Dominators) -> None:
    """Warn about nodes that can never run, and joins that wait for more arrivals than are possible."""
    graph = subject.graph
    runs = [True] * len(graph.ids)
    for at in graph.order:
        edges = graph.in_edges[at]
        live = [
            edge
            for edge in edges
            if runs[graph.src[edge]]
            and (not subject.definition.edges[edge].is_error or _is_followed(subject, edge))
        ]
        if edges and not live:
            runs[at] = False
            if any(runs[source] for source in graph.predecessors(at)):
                message = f"`{graph.ids[at]}` never runs: only error edges that are not followed lead to it"
                subject.warn(subject.places.nodes[at], problems.NEVER_RUNS, message)
        known = subject.known(at)
        if live and known is not None and known[1].merges:
            _check_at_least(subject, at, known, live, dominators)


def _check_at_least(
    subject: ValidationInput, at: int, known: tuple[Node, NodeType], live: list[int], dominators: Dominators
) -> None:
    node, kind = known
    needed = kind.join_rule(node.parameters).opens
    if not isinstance(needed, int):
        return
    most = _max_live(live, dominators)
    if most < needed:
        subject.warn(
            f"{subject.places.nodes[at]}.parameters.wait_mode",
            problems.JOIN_NEVER_OPENS,
            f"`{node.id}` waits for {needed} arrivals, but at most {most} of its {len(live)} in-edges can "
            f"be alive",
            f"use `at_least: {most}` or fewer",
        )


def _max_live(live: list[int], dominators: Dominators) -> int:
    """Return an upper bound of how many of these edges can be alive together.

    Edges that are reached by different outlets of their common dominator exclude each other.
    """
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


def check_shape(subject: ValidationInput) -> None:
    """Check for cycles, unreachable nodes, a missing exit, and triggers with in-edges."""
    graph, places = subject.graph, subject.places
    cycle = find_cycle(graph)
    if cycle:
        first = graph.index[cycle[0]]
        subject.report(
            places.nodes[first],
            problems.CYCLE,
            f"the edges form a cycle: {' → '.join((*cycle, cycle[0]))}",
            "remove one of its edges; use `split` to iterate over a list, `retry` to repeat a failed node",
        )
        if not graph.exits:
            subject.report("edges", problems.NO_EXIT, "every node has out-edges, so the workflow has no end")
        found = reachable(graph, graph.entries)
        for at, node in enumerate(graph.ids):
            if at not in found and node not in cycle:
                message = f"no path from an entry leads to `{node}`"
                subject.report(
                    places.nodes[at],
                    problems.UNREACHABLE_NODE,
                    message,
                    "an entry is a node without in-edges",
                )
    for at, node in enumerate(graph.ids):
        if subject.is_trigger(at) and graph.in_edges[at]:
            edge = graph.in_edges[at][0]
            subject.report(
                places.edges[edge],
                problems.TRIGGER_NOT_ENTRY,
                f"`{node}` is a trigger, but edge `{subject.definition.edges[edge].id}` leads to it",
                "a trigger starts an execution: remove the edge, or use `noop`",
            )
