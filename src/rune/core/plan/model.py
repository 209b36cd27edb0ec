"""The plan: a definition compiled once, so that decisions do not read the document again, and the parameters of its
nodes, resolved for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rune.core.definition.model import Definition, Node, Retry
from rune.core.expr import (
    Expression,
    ExpressionError,
    Names,
    Reference,
    Template,
    compile_expression,
    compile_template,
)
from rune.core.expr.budget import METER, BudgetError, Meter
from rune.core.node_type import Join, NodeType, Window
from rune.core.plan.graph import Graph, Scopes

_CONSTANT_NS = 500_000


class Rules(msgspec.Struct, frozen=True):
    """A list of rules with separately compiled fields, so that no rule after the matching one is evaluated."""

    name: str
    fields: tuple[dict[str, Template], ...]
    references: tuple[Reference, ...]
    pure: bool

    def value(self, index: int, field: str, scope: Mapping[str, Any]) -> Any:
        """Return one field of one rule, or None if it is absent."""
        compiled = self.fields[index].get(field)
        if compiled is None:
            return None
        try:
            return compiled.resolve(scope)
        except ExpressionError as error:
            raise located(f"{self.name}[{index}].{field}", error) from error


Element = Expression | Template | Rules


class Parameters(msgspec.Struct, frozen=True, gc=False):
    """The parameters of one node: constants, those resolved before the run, and those that the node evaluates."""

    fixed: dict[str, Any]
    dynamic: tuple[tuple[str, Expression | Template], ...]
    elements: dict[str, Element]
    references: tuple[Reference, ...]
    pure: bool

    def resolve(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of one run, or raise an error that names the parameter.

        Parameters that the node evaluates (`elements`) are included unresolved, if at all.
        """
        values = dict(self.fixed)
        for name, compiled in self.dynamic:
            values[name] = evaluate(name, compiled, scope)
        return values


NO_PARAMETERS = Parameters({}, (), {}, (), pure=True)


def evaluate(name: str, compiled: Expression | Template, scope: Mapping[str, Any]) -> Any:
    """Return the value of one compiled parameter, or raise an error that names it."""
    try:
        return compiled.evaluate(scope) if isinstance(compiled, Expression) else compiled.resolve(scope)
    except ExpressionError as error:
        raise located(name, error) from error


def located(name: str, error: ExpressionError) -> ExpressionError:
    """Return the error with the path of its parameter."""
    inner = error.path
    separator = "" if not inner or inner.startswith("[") else "."
    message = error.message.removeprefix(f"{inner}: ") if inner else error.message
    return type(error)(f"parameters.{name}{separator}{inner}: {message}")


def expression_source(text: str) -> str:
    """Return the source of an expression that may be wrapped in `{{ … }}`."""
    stripped = text.strip()
    if stripped.startswith("{{") and stripped.endswith("}}") and "{{" not in stripped[2:]:
        return stripped[2:-2]
    return text


def compile_parameter(type: NodeType, name: str, value: Any, names: Names) -> Element | None:
    """Return the compiled parameter; None if its value is used unchanged."""
    kind = type.kinds.get(name, "template")
    if kind == "literal":
        return None
    if kind != "template" and isinstance(value, str):
        return compile_expression(expression_source(value), names, name)
    whole = compile_template(value, names, name)
    if kind == "expression" and isinstance(value, list) and all(isinstance(rule, dict) for rule in value):
        fields = tuple(
            {key: compile_template(rule[key], names, f"{name}[{index}].{key}") for key in rule}
            for index, rule in enumerate(value)
        )
        return Rules(name, fields, whole.references, whole.pure)
    return whole


def compile_parameters(type: NodeType, parameters: Mapping[str, Any], names: Names) -> Parameters:
    """Compile every parameter of a node."""
    fixed: dict[str, Any] = {}
    dynamic: list[tuple[str, Expression | Template]] = []
    elements: dict[str, Element] = {}
    references: list[Reference] = []
    pure = True
    for name, value in parameters.items():
        compiled = compile_parameter(type, name, value, names)
        if compiled is None:
            fixed[name] = value
            continue
        references += compiled.references
        pure = pure and compiled.pure
        kind = type.kinds.get(name)
        if kind == "element":
            elements[name] = compiled
        elif isinstance(compiled, Rules) or (kind == "expression" and isinstance(compiled, Expression)):
            fixed[name] = value
            elements[name] = compiled
        elif not _resolve_constant(name, compiled, fixed):
            dynamic.append((name, compiled))
    return Parameters(fixed, tuple(dynamic), elements, tuple(references), pure)


def _leave_to_run(cost: int) -> int:
    raise BudgetError("the constant is evaluated when its node runs")


def _resolve_constant(name: str, compiled: Expression | Template, fixed: dict[str, Any]) -> bool:
    """Resolve a constant now. One that fails, such as `{{ 1 / 0 }}`, fails its node each time it runs, and one that
    takes long is resolved in every run."""
    if not isinstance(compiled, Template) or not compiled.constant:
        return False
    try:
        fixed[name] = compiled.resolve({METER: Meter(_CONSTANT_NS, _leave_to_run)})
    except ExpressionError:
        return False
    return True


Edges = tuple[int, ...]
Split = tuple[Edges, Edges]
"""Live edges and dead edges."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that the rules need about one node."""

    index: int
    id: str
    node: Node
    type: NodeType
    parameters: Parameters
    pure: bool

    out: Edges
    in_edges: Edges
    normal: Split  # a success without outlets
    by_outlet: Mapping[str | None, Split]  # by outlet of an output; None if the type has no outlets
    rescue: Split  # policy `branch`
    ignored: str | None  # the outlet that policy `ignore` takes
    error_edges: Edges
    success: Edges

    is_join: bool
    opens: Join
    timeout: int | None  # ms
    timeout_from: Literal["first", "latest", "scope"]
    tolerates: bool  # of an aggregator: the definition states how many items may fail
    region: frozenset[int]  # nodes that an opening cancels
    needs_choice: bool  # the winner is recorded as a fact before the node runs

    policy: Literal["halt", "ignore", "branch", "collect"]
    retry: Retry
    listed: bool  # an aggregator collects an unhandled failure of this node

    depth: int
    split: int  # innermost enclosing split, or -1
    fans_out: bool
    window: Window
    aggregator: int  # of this split, or -1
    body: tuple[int, ...]  # of this split, nested splits included
    races: tuple[int, ...]  # joins in the items of this split whose timeout begins with the scope
    joins_items: bool
    split_of: int  # the split of this aggregator, or -1
    passes_payload: bool
    merges: bool
    raced: bool  # a race is upstream: visibility depends on the winner


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled definition."""

    definition: Definition
    hash: str
    graph: Graph
    scopes: Scopes
    ids: tuple[str, ...]
    index: Mapping[str, int]
    nodes: tuple[NodePlan, ...]
    src: Edges
    dst: Edges
    gather_position: Mapping[int, int]  # edge into an aggregator -> its position among the in-edges
    entries: tuple[int, ...]
    triggers: frozenset[int]
    first: tuple[int, ...]  # the nodes after the triggers; without triggers the entries
    leaves: tuple[int, ...]  # root nodes without out-edges
    outputs: tuple[int, ...]  # root nodes that set the execution's output
    races: tuple[int, ...]  # root joins whose timeout begins with the execution
    timeout: int | None  # ms
    expect_within: int | None  # ms
    launches: bool  # some node starts child executions
    max_parallel: int | None  # nodes of one execution that run concurrently
