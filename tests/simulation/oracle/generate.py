"""Random definitions: always valid, small, and made so that a mistake changes a visible value."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.oracle.fill import Filler
from tests.simulation.oracle.grow import Grower
from tests.simulation.oracle.model import Edge, Effect, Merge, Model, Node, Switch


def random_model(seed: int, size: int | None = None) -> tuple[Model, dict[str, Any]]:
    """A model and its start payload; the same seed and size always give the same pair."""
    rng = Random(seed)
    grower = Grower(rng, size or rng.choice((3, 4, 5, 6, 8, 8, 10, 10, 12, 14, 16, 18, 22)))
    grower.grow()
    links = list(grower.links)
    rng.shuffle(links)
    edges = [Edge(f"e{i}", *link) for i, link in enumerate(links)]
    nodes = Filler(rng, grower.drafts, edges).fill()
    rng.shuffle(nodes)
    model = Model(f"random-{seed}", tuple(nodes), tuple(edges))
    payload = _payload(rng)
    return Model(model.id, model.nodes, model.edges, (), _features(model)), payload


def _payload(rng: Random) -> dict[str, Any]:
    """The start payload: numbers, lists of several kinds and lengths, rows that lack keys here and there."""
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
    """The shapes a model holds, as words."""
    found: set[str] = set()
    for node in model.nodes:
        found |= _of_node(model, node)
    return frozenset(found)


def _of_node(model: Model, node: Node) -> set[str]:
    shape = model.shape
    ins, outs, inside = shape.ins[node.id], shape.outs[node.id], bool(shape.scope[node.id])
    where = "inside" if inside else "outside"
    found = {node.kind, f"depth:{shape.depth[node.id]}"}
    if node.error:
        found |= {f"policy:{node.error}", f"policy:{node.error}:{node.kind}"}
        if node.error == "ignore" and not outs:
            found.add("ignore:leaf")
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
        found |= _of_router(node, {edge.outlet for edge in outs if edge.outlet})
    if isinstance(node.params, Merge):
        found.add(f"merge:{node.params.mode}:{node.params.wait_mode}:{where}")
        if node.params.cancel_losers:
            found.add("cancel_losers")
    if isinstance(node.params, Effect) and node.retry and node.params.fail_attempts:
        out = node.params.fail_attempts >= node.retry.max_attempts
        found.add("retry:runs-out" if out else "retry:succeeds")
    if getattr(node.params, "timeout", None):
        found |= {"timeout", f"timeout:{node.kind}"}
    if node.kind == "split":
        found |= _of_split(model, node)
    return found


def _of_router(node: Node, wired: set[str]) -> set[str]:
    if isinstance(node.params, Switch):
        return {"switch:fallback" if "fallback" in wired else "switch:no-fallback"}
    return {f"conditional:{len(wired)}-arms"}


def _of_split(model: Model, split: Node) -> set[str]:
    shape, found = model.shape, set()
    gather = shape.aggregator.get(split.id)
    params: Any = split.params
    if params.max_in_flight:
        found.add("max_in_flight")
    if params.batch_size:
        found.add("batch_size")
    if gather is None:
        return found | {"split:no-aggregator"}
    ins = shape.ins[gather]
    if any(edge.src == split.id for edge in ins):
        found.add("split:straight")
    if len({edge.src for edge in ins}) > 1:
        found.add("fork-into-aggregator")
    if any(not shape.reaches(name, gather) for name in shape.members[split.id]):
        found.add("side-branch")
    tolerate: Any = shape.nodes[gather].params
    if tolerate.tolerate is not None:
        found.add("tolerate:percent" if isinstance(tolerate.tolerate, str) else "tolerate:count")
    return found
