"""The `filter` node: keeps the matching elements of a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.expr import MISSING, MissingError, truthy
from rune.core.plan.model import located
from rune.nodes.base import NodeCall
from rune.nodes.schema import Items, Model, Operator, declare, either
from rune.nodes.values import apply, each_value, field_of, input_items, listing, path_parts

# The estimated cost of a rule for one element, in nanoseconds.
_RULE_NS = 2_000


class Rule(Model, kw_only=True, frozen=True):
    """One condition on a field of the element."""

    field: Annotated[str, Meta(min_length=1, description="Dotted path of the field.")]
    operator: Annotated[Operator, Meta(description="Comparison operator.")] = "=="
    value: Annotated[Any, Meta(description="Value to compare with.")] = None


class Parameters(Model, kw_only=True, frozen=True):
    """The condition elements must meet."""

    input_array: Items = UNSET
    expression: Annotated[
        str | bool | None, Meta(description="Condition for keeping an element, which is `$item`.")
    ] = None
    rules: Annotated[
        Annotated[list[Rule], Meta(min_length=1)] | None,
        Meta(description="Conditions on fields, instead of an expression."),
    ] = None
    match: Annotated[Literal["all", "any"], Meta(description="Whether all rules must match or any.")] = "all"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    return either(parameters, "expression", "rules", required=True)


TYPE = declare(
    "filter",
    Parameters,
    kinds={"expression": "element", "match": "literal"},
    extra=_combined,
    summary="Keeps the matching elements of a list.",
    doc="Keeps the elements for which an expression or a set of rules is true, in their original order.",
    output="`{items, count, original_count}`.",
    errors={
        "EXPRESSION_ERROR": "the condition cannot be evaluated",
        "BAD_PARAMETER": "`input_array` is not a list",
    },
    binds_item=lambda parameters: True,
    reads_payload=lambda parameters: parameters.get("input_array") is None,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Keep the matching elements, in order."""
    items = input_items(call)
    rules = call.parameters.rules
    if rules is None:
        results = each_value(call, items, "expression")
        kept = [item for item, result in zip(items, results, strict=True) if truthy(result)]
    else:
        quantifier = all if call.parameters.match == "all" else any
        paths = [path_parts(rule.field) for rule in rules]
        kept = []
        for item in items:
            call.meter.charge(len(rules) * _RULE_NS)
            if quantifier(_holds(rule, paths[at], at, item, call.scope) for at, rule in enumerate(rules)):
                kept.append(item)
    return Output(listing(kept, items))


def _holds(rule: Rule, path: list[str], at: int, item: Any, scope: Mapping[str, Any]) -> bool:
    """Evaluate a rule for an element. A missing field is an error for every operator but `exists`."""
    found: Any = MISSING
    try:
        found = field_of(item, path)
    except MissingError as error:
        if rule.operator != "exists":
            raise located(f"rules[{at}].field", error) from error
    return apply(rule.operator, found, rule.value, f"rules[{at}]", scope)
