"""Generates random valid models in which a wrong evaluation changes a visible value."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.oracle.graph_generator import GraphGenerator
from tests.simulation.oracle.model import Edge, Effect, Merge, Model, Node, Switch
from tests.simulation.oracle.parameter_generator import ParameterGenerator


def random_model(seed: int, size: int | None = None) -> tuple[Model, dict[str, Any]]:
    """A model and its start payload; the same seed and size always give the same pair."""
    rng = Random(seed)
    graph = GraphGenerator(rng, size or rng.choice((3, 4, 5, 6, 8, 8, 10, 10, 12, 14, 16, 18, 22)))
    graph.generate()
    links = list(graph.links)
    rng.shuffle(links)
    edges = [Edge(f"e{i}", *link) for i, link in enumerate(links)]
    nodes = ParameterGenerator(rng, graph.drafts, edges).generate()
    rng.shuffle(nodes)
    model = Model(f"random-{seed}", tuple(nodes), tuple(edges))
    payload = _payload(rng)
    return Model(model.id, model.nodes, model.edges, (), _features(model)), payload


def _payload(rng: Random) -> dict[str, Any]:
    """A start payload with numbers, lists of several kinds and lengths, and rows with missing keys."""
    count = rng.choice((0, 1, 2, 2, 3, 3, 4))
    return {
        "t": "in",
        "n": rng.randint(0, 2),
        "ok": rng.random() < 0.5,
        "xs": [None if rng.random() < 0.05 else rng.randint(0, 3) for _ in range(count)],
        "none": [],
        "lists": [[rng.randint(0, 3) for _ in range(rng.randint(0, 2))] for _ in range(rng.randint(1, 3))],
        "rows": [_row(rng, f"row{i}", 2) for i in range(rng.choice((0, 1, 2, 2, 3, 3)))],
    }


def _row(rng: Random, name: str, depth: int) -> dict[str, Any]:
    row: dict[str, Any] = {"t": name, "n": rng.randint(0, 2)}
    if rng.random() < 0.6:
        row["m"] = rng.randint(0, 9)
    if rng.random() < 0.85:
        count = rng.choice((0, 1, 2, 2, 3))
        inner = [_row(rng, f"{name}.{i}", 1) if depth > 1 else rng.randint(0, 3) for i in range(count)]
        row["cells"] = inner
    return row


def _features(model: Model) -> frozenset[str]:
    """Names of the features that a model contains."""
    found: set[str] = set()
    for node in model.nodes:
        found |= _node_features(model, node)
    return frozenset(found)


def _node_features(model: Model, node: Node) -> set[str]:
    shape = model.shape
    where = "inside" if shape.scope[node.id] else "outside"
    found = {node.kind, f"depth:{shape.depth[node.id]}"}
    if node.error:
        found |= {f"policy:{node.error}", f"policy:{node.error}:{node.kind}"}
        if node.error == "ignore" and not shape.outs[node.id]:
            found.add("ignore:leaf")
    found |= _edge_features(node, shape.ins[node.id], shape.outs[node.id], where)
    found |= _parameter_features(node, where)
    if node.kind == "split":
        found |= _split_features(model, node)
    return found


def _edge_features(node: Node, ins: list[Edge], outs: list[Edge], where: str) -> set[str]:
    found = set()
    if not ins and node.kind != "trigger":
        found.add("second-entry")
    if len({edge.dst for edge in outs if not edge.is_error}) > 1 and node.kind in ("edit", "effect", "noop"):
        found.add("fork")
    if len(ins) > 1 and node.kind not in ("merge", "aggregator"):
        found.add(f"join:{node.join}:{where}")
    if len(ins) > len({edge.src for edge in ins}):
        found.add("same-source-twice")
    if len(ins) > 1 and any(edge.is_error for edge in ins):
        found.add("error-edge-rejoins")
    if node.quorum and len(ins) > 1:
        found.add("race")
    if node.kind in ("conditional", "switch"):
        found |= _router_features(node, {edge.outlet for edge in outs if edge.outlet})
    return found


def _parameter_features(node: Node, where: str) -> set[str]:
    found = set()
    if isinstance(node.params, Merge):
        found.add(f"merge:{node.params.mode}:{node.params.wait_mode}:{where}")
        if node.params.cancel_losers:
            found.add("cancel_losers")
    if isinstance(node.params, Effect) and node.retry and node.params.fail_attempts:
        runs_out = node.params.fail_attempts >= node.retry.max_attempts
        found.add("retry:runs-out" if runs_out else "retry:succeeds")
    if getattr(node.params, "timeout", None):
        found |= {"timeout", f"timeout:{node.kind}"}
    return found


def _router_features(node: Node, wired: set[str]) -> set[str]:
    if isinstance(node.params, Switch):
        return {"switch:fallback" if "fallback" in wired else "switch:no-fallback"}
    return {f"conditional:{len(wired)}-arms"}


def _split_features(model: Model, split: Node) -> set[str]:
    shape, found = model.shape, set()
    aggregator = shape.aggregator.get(split.id)
    params: Any = split.params
    if params.max_in_flight:
        found.add("max_in_flight")
    if params.batch_size:
        found.add("batch_size")
    if aggregator is None:
        return found | {"split:no-aggregator"}
    ins = shape.ins[aggregator]
    if any(edge.src == split.id for edge in ins):
        found.add("split:straight")
    if len({edge.src for edge in ins}) > 1:
        found.add("fork-into-aggregator")
    if any(not shape.reaches(name, aggregator) for name in shape.members[split.id]):
        found.add("side-branch")
    collecting: Any = shape.nodes[aggregator].params
    if collecting.tolerate is not None:
        found.add("tolerate:percent" if isinstance(collecting.tolerate, str) else "tolerate:count")
    return found
