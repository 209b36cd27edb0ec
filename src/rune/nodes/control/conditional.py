"""`conditional`: one of two ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.expr import truthy
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, Operator, conflicting, declare
from rune.nodes.values import compare


class Condition(Model, kw_only=True, frozen=True):
    """One comparison."""

    op1: Annotated[Any, Meta(description="Left side.")]
    operator: Annotated[Operator, Meta(description="How the sides compare.")] = "=="
    op2: Annotated[Any, Meta(description="Right side.")] = None


class Parameters(Model, kw_only=True, frozen=True):
    """What decides, and where it leads."""

    expression: Annotated[
        str | bool | Annotated[list[Condition], Meta(min_length=1)],
        Meta(description="An expression, or a list of comparisons."),
    ]
    operator: Annotated[
        Literal["and", "or"], Meta(description="Whether all comparisons of a list must hold, or one.")
    ] = "and"
    true_edge_id: Annotated[
        str | None, Meta(description="The edge taken when it holds; or label the edge `true`.")
    ] = None
    false_edge_id: Annotated[
        str | None, Meta(description="The edge taken when it does not hold; or label the edge `false`.")
    ] = None


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    true, false = parameters.get("true_edge_id"), parameters.get("false_edge_id")
    if true is not None and true == false:
        return [
            conflicting("false_edge_id", f"`{true}` is the edge for true and for false", "name two edges")
        ]
    return []


def _routes(parameters: Mapping[str, Any]) -> Mapping[str, str]:
    named = {"true": parameters.get("true_edge_id"), "false": parameters.get("false_edge_id")}
    return {edge: outlet for outlet, edge in named.items() if edge is not None}


TYPE = declare(
    "conditional",
    Parameters,
    kinds={
        "expression": "expression",
        "operator": "literal",
        "true_edge_id": "literal",
        "false_edge_id": "literal",
    },
    extra=_combined,
    aliases=("if",),
    summary="Takes one of two ways.",
    doc="Evaluates a condition and follows the edges of outlet `true` or `false`. The payload passes "
    "through.",
    output="`{result}`: true or false.",
    errors={"EXPRESSION_ERROR": "the condition cannot be evaluated"},
    passes_payload=lambda parameters: True,
    outlets=lambda parameters: ("true", "false"),
    routes=_routes,
    ignore_outlet="false",
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The way, by the condition."""
    result = _result(call)
    return Output({"result": result}, "true" if result else "false")


def _result(call: NodeCall[Parameters]) -> bool:
    condition = call.parameters.expression
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, str):
        return truthy(call.evaluate("expression"))
    rules = call.rules("expression")
    # As in an expression, what comes after the comparison that decides is not looked at.
    held = (
        compare(rules, index, each.operator, ("op1", "op2"), call.scope).holds
        for index, each in enumerate(condition)
    )
    return all(held) if call.parameters.operator == "and" else any(held)
