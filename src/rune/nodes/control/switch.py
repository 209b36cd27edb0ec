"""The `switch` node: follows the branch of the first matching rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.expr import MISSING
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, Operator, conflicting, declare
from rune.nodes.values import compare


class Rule(Model, kw_only=True, frozen=True):
    """One case."""

    value: Annotated[Any, Meta(description="Left operand.")]
    operator: Annotated[Operator, Meta(description="Comparison operator.")] = "=="
    compare: Annotated[Any, Meta(description="Right operand.")] = None


class Parameters(Model, kw_only=True, frozen=True):
    """The cases in order and the edges they select."""

    rules: Annotated[list[Rule], Meta(min_length=1, description="The cases; the first match is taken.")]
    routes: Annotated[
        list[str | None] | None,
        Meta(
            description="Edge ids, one per rule plus the fallback last; null selects no edge. Alternative: label the "
            "edges `case_0`, `case_1`, …, `fallback`."
        ),
    ] = None


def _outlets(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return (*(f"case_{index}" for index in range(len(parameters["rules"]))), "fallback")


def _routes(parameters: Mapping[str, Any]) -> Mapping[str, str]:
    named = zip(parameters.get("routes") or (), _outlets(parameters), strict=False)
    return {edge: outlet for edge, outlet in named if edge is not None}


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    rules, routes = parameters["rules"], parameters.get("routes")
    if isinstance(rules, str):
        return [
            conflicting(
                "rules",
                "the list of rules is an expression",
                "write the rules out; their operands may be expressions",
            )
        ]
    if routes is None:
        return []
    found: list[Problem] = []
    if len(routes) != len(rules) + 1:
        message = f"{len(rules) + 1} routes needed, found {len(routes)}"
        found.append(
            conflicting(
                "routes", message, "one edge id per rule plus the fallback last; null selects no edge"
            )
        )
    named = [each for each in routes if each is not None]
    twice = sorted({each for each in named if named.count(each) > 1})
    if twice:
        found.append(
            conflicting("routes", f"edge `{twice[0]}` is used for two cases", "use one edge per case")
        )
    return found


def _outlet(output: Any) -> str | None:
    match output:
        case {"output_index": int(), "matched_rule": None}:
            return "fallback"
        case {"output_index": int(index), "matched_rule": dict()}:
            return f"case_{index}"
    return None


TYPE = declare(
    "switch",
    Parameters,
    kinds={"rules": "expression", "routes": "literal"},
    extra=_combined,
    summary="Follows the branch of the first matching rule.",
    doc="Evaluates the rules in order and follows the edges of outlet `case_<n>`, or of `fallback` if none matches. "
    "Passes the payload through.",
    output="`{output_index, matched_rule}`.",
    errors={"EXPRESSION_ERROR": "an operand of a rule cannot be evaluated"},
    passes_payload=lambda parameters: True,
    outlets=_outlets,
    routes=_routes,
    ignore_outlet="fallback",
    outlet_of=_outlet,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Select the outlet of the first matching rule; later rules are not evaluated."""
    rules = call.rules("rules")
    for index, rule in enumerate(call.parameters.rules):
        found = compare(rules, index, rule.operator, ("value", "compare"), call.scope)
        if found.holds:
            left = None if found.left is MISSING else found.left
            matched = {"value": left, "operator": rule.operator, "compare": found.right}
            return Output({"output_index": index, "matched_rule": matched}, f"case_{index}")
    return Output({"output_index": len(rules.fields), "matched_rule": None}, "fallback")
