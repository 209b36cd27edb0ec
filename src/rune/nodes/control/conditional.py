"""The `conditional` node: follows one of two branches."""

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

    op1: Annotated[Any, Meta(description="Left operand.")]
    operator: Annotated[Operator, Meta(description="Comparison operator.")] = "=="
    op2: Annotated[Any, Meta(description="Right operand.")] = None


class Parameters(Model, kw_only=True, frozen=True):
    """The condition and the edges it selects."""

    expression: Annotated[
        str | bool | Annotated[list[Condition], Meta(min_length=1)],
        Meta(description="An expression, or a list of comparisons."),
    ]
    operator: Annotated[
        Literal["and", "or"],
        Meta(description="Whether all comparisons in a list must hold (`and`) or any (`or`)."),
    ] = "and"
    true_edge_id: Annotated[
        str | None,
        Meta(description="Edge followed when the condition is true. Alternative: label the edge `true`."),
    ] = None
    false_edge_id: Annotated[
        str | None,
        Meta(description="Edge followed when the condition is false. Alternative: label the edge `false`."),
    ] = None


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    true, false = parameters.get("true_edge_id"), parameters.get("false_edge_id")
    if true is not None and true == false:
        return [
            conflicting(
                "false_edge_id", f"`{true}` is given for both true and false", "name two different edges"
            )
        ]
    return []


def _routes(parameters: Mapping[str, Any]) -> Mapping[str, str]:
    named = {"true": parameters.get("true_edge_id"), "false": parameters.get("false_edge_id")}
    return {edge: outlet for outlet, edge in named.items() if edge is not None}


def _outlet(output: Any) -> str | None:
    match output:
        case {"result": bool(result)}:
            return "true" if result else "false"
    return None


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
    summary="Follows one of two branches.",
    doc="Evaluates a condition and follows the edges of outlet `true` or `false`. Passes the payload through.",
    output="`{result}`: true or false.",
    errors={"EXPRESSION_ERROR": "the condition cannot be evaluated"},
    passes_payload=lambda parameters: True,
    outlets=lambda parameters: ("true", "false"),
    routes=_routes,
    ignore_outlet="false",
    outlet_of=_outlet,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Evaluate the condition and select the outlet."""
    result = _result(call)
    return Output({"result": result}, "true" if result else "false")


def _result(call: NodeCall[Parameters]) -> bool:
    condition = call.parameters.expression
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, str):
        return truthy(call.evaluate("expression"))
    rules = call.rules("expression")
    # Short-circuit as an expression does: comparisons after the deciding one are not evaluated.
    held = (
        compare(rules, index, each.operator, ("op1", "op2"), call.scope).holds
        for index, each in enumerate(condition)
    )
    return all(held) if call.parameters.operator == "and" else any(held)
