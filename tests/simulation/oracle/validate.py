"""Whether a model is a definition that may be deployed: the rules of the language, checked once more."""

from __future__ import annotations

from tests.simulation.oracle.expr import Coalesce, Exists, Expr, Ref
from tests.simulation.oracle.model import Model, Node, Switch
from tests.simulation.oracle.shape import InvalidModelError, Shape

OPEN = {"json", "trigger", "input", "error"}


def problems(model: Model) -> list[str]:
    """Everything that is wrong with a model; empty if nothing is."""
    try:
        shape = Shape(model)
    except InvalidModelError as error:
        return [str(error)]
    found: list[str] = []
    if len({edge.id for edge in model.edges}) != len(model.edges):
        found.append("duplicate edge id")
    for node in model.nodes:
        found += _of_node(shape, node)
    return found + _outputs(shape)


def _of_node(shape: Shape, node: Node) -> list[str]:
    found = []
    outs, ins = shape.outs[node.id], shape.ins[node.id]
    errors = [edge for edge in outs if edge.is_error]
    if len(errors) > 1 or (node.error == "branch" and len(errors) != 1):
        found.append(f"{node.id} needs one error edge")
    outlets = _outlets(node)
    if any(edge.outlet not in outlets for edge in outs if not edge.is_error):
        found.append(f"{node.id} has no such outlet")
    if node.kind == "trigger" and ins:
        found.append(f"{node.id} is a trigger with in-edges")
    if node.kind == "split" and len(outs) == len(errors):
        found.append(f"{node.id} leads nowhere")
    if node.quorum > max(len(ins), 1):
        found.append(f"{node.id} can never open")
    if node.join == "any" and node.kind in ("merge", "aggregator"):
        found.append(f"{node.id} says twice how it joins")
    for expr in node.expressions():
        found += [f"{node.id}: {why}" for why in _references(shape, node, expr)]
    return found


def _outlets(node: Node) -> set[str | None]:
    if node.kind == "conditional":
        return {"true", "false"}
    if isinstance(node.params, Switch):
        return {"fallback", *(f"case_{i}" for i in range(len(node.params.rules)))}
    return {None}


def _references(shape: Shape, node: Node, expr: Expr) -> list[str]:
    found = []
    covered = {
        id(inner)
        for outer in expr.walk()
        if isinstance(outer, Coalesce | Exists)
        for inner in outer.children()
    }
    for part in expr.walk():
        if not isinstance(part, Ref) or part.name in OPEN:
            continue
        if part.name in ("item", "index"):
            found += [] if shape.scope[node.id] else [f"${part.name} outside a split"]
        elif part.name not in shape.nodes:
            found.append(f"${part.name} is unknown")
        elif not shape.reaches(part.name, node.id):
            found.append(f"${part.name} is no ancestor")
        elif shape.scope[node.id][: shape.depth[part.name]] != shape.scope[part.name]:
            found.append(f"${part.name} is inside another scope")
        elif id(part) not in covered:
            found.append(f"${part.name} has no default")
    return found


def _outputs(shape: Shape) -> list[str]:
    outputs = [node.id for node in shape.nodes.values() if node.kind == "output"]
    if any(shape.scope[name] for name in outputs):
        return ["output inside a split"]
    if len(outputs) < 2:
        return []
    arrivals = [edge for name in outputs for edge in shape.ins[name]]
    apart = len({edge.src for edge in arrivals}) == 1 and len({e.outlet for e in arrivals}) == len(outputs)
    return [] if apart and len(arrivals) == len(outputs) else ["two outputs can both run"]
