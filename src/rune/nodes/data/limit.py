"""The `limit` node: keeps the first elements of a list."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Items, Model, declare
from rune.nodes.values import input_items, listing


class Parameters(Model, kw_only=True, frozen=True):
    """The list and how many elements to keep."""

    input_array: Items = UNSET
    count: Annotated[int, Meta(ge=0, description="Number of elements to keep.")]


TYPE = declare(
    "limit",
    Parameters,
    summary="Keeps the first elements of a list.",
    doc="Keeps the first `count` elements of a list.",
    output="`{items, count, original_count}`.",
    errors={
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
        "BAD_PARAMETER": "`input_array` is not a list",
    },
    reads_payload=lambda parameters: parameters.get("input_array") is None,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    items = input_items(call)
    return Output(listing(items[: call.parameters.count], items))
