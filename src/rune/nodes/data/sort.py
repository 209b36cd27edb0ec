"""The `sort` node: sorts a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from rune.core.definition.problems import Problem
from rune.core.execution.outcome import Outcome, Output
from rune.core.expr import ExpressionError, MissingError
from rune.core.expr.functions.collections import sorted_order
from rune.core.expr.operators import comparable
from rune.core.expr.values import kind_name
from rune.core.plan.model import located
from rune.nodes.base import NodeCall
from rune.nodes.schema import Items, Model, declare, either
from rune.nodes.values import each_value, field_of, input_items, listing, path_parts

# Estimated nanoseconds: checking a key, looking up a field.
_CHECK_NS = 150
_FIELD_NS = 1_000

Direction = Literal["asc", "desc"]


class Rule(Model, kw_only=True, frozen=True):
    """One sort key."""

    field: Annotated[str, Meta(min_length=1, description="Dotted path of the field.")]
    direction: Annotated[Direction, Meta(description="Ascending or descending.")] = "asc"


class Parameters(Model, kw_only=True, frozen=True):
    """The list and its sort keys."""

    input_array: Items = UNSET
    expression: Annotated[
        str | None, Meta(description="Sort key of an element, which is `$item`. Default: the element itself.")
    ] = None
    rules: Annotated[
        Annotated[list[Rule], Meta(min_length=1)] | None,
        Meta(description="Sort keys, most significant first, instead of an expression."),
    ] = None
    direction: Annotated[Direction, Meta(description="Ascending or descending, for `expression`.")] = "asc"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    return either(parameters, "expression", "rules", required=False)


TYPE = declare(
    "sort",
    Parameters,
    kinds={"expression": "element", "direction": "literal"},
    extra=_combined,
    summary="Sorts a list.",
    doc="Sorts by a key or by several fields. The sort is stable; keys of mixed types are an error.",
    output="`{items, count, original_count}`.",
    errors={
        "EXPRESSION_ERROR": "a key cannot be evaluated or compared",
        "BAD_PARAMETER": "`input_array` is not a list",
    },
    binds_item=lambda parameters: True,
    reads_payload=lambda parameters: parameters.get("input_array") is None,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    items = input_items(call)
    order = list(range(len(items)))
    # Sort by the most significant key last: the sort is stable, so it keeps the order of earlier passes.
    for keys, direction, place in reversed(_keys(call, items)):
        call.meter.charge(len(keys) * _CHECK_NS)
        _check_comparable(keys, place)
        order = sorted_order(order, keys, reverse=direction == "desc", meter=call.meter)
    return Output(listing([items[at] for at in order], items))


def _keys(call: NodeCall[Parameters], items: list[Any]) -> list[tuple[list[Any], Direction, str]]:
    """Return the keys of all elements, most significant first, with direction and source parameter."""
    parameters = call.parameters
    if parameters.rules is not None:
        return [
            (_fields(call, items, rule.field, f"rules[{at}].field"), rule.direction, f"rules[{at}]")
            for at, rule in enumerate(parameters.rules)
        ]
    keys = list(each_value(call, items, "expression")) if "expression" in call.elements else items
    return [(keys, parameters.direction, "expression")]


def _fields(call: NodeCall[Parameters], items: list[Any], path: str, place: str) -> list[Any]:
    call.meter.charge(len(items) * _FIELD_NS + len(path))
    parts = path_parts(path)
    try:
        return [field_of(item, parts) for item in items]
    except MissingError as error:
        raise located(place, error) from error


def _check_comparable(keys: list[Any], place: str) -> None:
    for each in keys:
        if not comparable(keys[0], each):
            message = f"cannot order {kind_name(keys[0])} and {kind_name(each)}"
            raise located(place, ExpressionError(message))
