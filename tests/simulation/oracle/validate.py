"""Validates a model against the rules of the language, independently of the product."""

from __future__ import annotations

from tests.simulation.oracle.expr import Coalesce, Exists, Expr, Ref
from tests.simulation.oracle.model import Model, Node, Switch
from tests.simulation.oracle.shape import InvalidModelError, Shape

ALWAYS_DEFINED = {"json", "trigger", "input", "error"}


def problems(model: Model) -> list[str]:
    """All problems of a model."""
    try:
        shape = Shape(model)
    except InvalidModelError as error:
        return [str(error)]
    found: list[str] = []
    if len({edge.id for edge in model.edges}) != len(model.edges):
        found.append("duplicate edge id")
    for node in model.nodes:
        found += _node_problems(shape, node)
    return found + _output_problems(shape)


def _node_problems(shape: Shape, node: Node) -> list[str]:
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
        found.append(f"{node.id} has no out-edge")
    if node.quorum > max(len(ins), 1):
        found.append(f"{node.id} can never open")
    if node.join == "any" and node.kind in ("merge", "aggregator"):
        found.append(f"{node.id} sets join and a join mode of its own")
    for expr in node.expressions():
        found += [f"{node.id}: {problem}" for problem in _reference_problems(shape, node, expr)]
    return found


def _outlets(node: Node) -> set[str | None]:
    if node.kind == "conditional":
        return {"true", "false"}
    if isinstance(node.params, Switch):
        return {"fallback", *(f"case_{i}" for i in range(len(node.params.rules)))}
    return {None}


def _reference_problems(shape: Shape, node: Node, expr: Expr) -> list[str]:
    found = []
    with_default = {
        id(inner)
        for outer in expr.walk()
        if isinstance(outer, Coalesce | Exists)
        for inner in outer.children()
    }
    for part in expr.walk():
        if not isinstance(part, Ref) or part.name in ALWAYS_DEFINED:
            continue
        if part.name in ("item", "index"):
            found += [] if shape.scope[node.id] else [f"${part.name} outside a split"]
        elif part.name not in shape.nodes:
            found.append(f"${part.name} is unknown")
        elif not shape.reaches(part.name, node.id):
            found.append(f"${part.name} is not an ancestor")
        elif shape.scope[node.id][: shape.depth[part.name]] != shape.scope[part.name]:
            found.append(f"${part.name} is inside another scope")
        elif id(part) not in with_default:
            found.append(f"${part.name} has no default")
    return found


def _output_problems(shape: Shape) -> list[str]:
    outputs = [node.id for node in shape.nodes.values() if node.kind == "output"]
    if any(shape.scope[name] for name in outputs):
        return ["output inside a split"]
    if len(outputs) < 2:
        return []
    arrivals = [edge for name in outputs for edge in shape.ins[name]]
    exclusive = len({edge.src for edge in arrivals}) == 1 and len({e.outlet for e in arrivals}) == len(
        outputs
    )
    return [] if exclusive and len(arrivals) == len(outputs) else ["two outputs can both run"]
