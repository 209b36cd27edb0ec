"""The `split` node: runs one branch per item of a list."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rune.core.execution.outcome import FanOut, Outcome
from rune.core.node_type import Window
from rune.errors import LimitExceededError
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The list to fan out and its concurrency."""

    input_array: Annotated[
        list[Any], Meta(description="The list to fan out; each item runs in a separate scope.")
    ]
    max_in_flight: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(
            description="Maximum number of items in flight, waiting items included. Default: 1,000, not counting "
            "items that only wait."
        ),
    ] = None
    batch_size: Annotated[
        int, Meta(ge=1, description="Items per scope; if greater than 1, `$item` is a list.")
    ] = 1


TYPE = declare(
    "split",
    Parameters,
    kinds={"max_in_flight": "literal", "batch_size": "literal"},
    summary="Runs the following nodes once per item of a list.",
    doc="Each item runs in its own scope, where `$item` and `$index` are the item and its position. An "
    "`aggregator` collects the results.",
    output="None; the aggregator outputs the ordered list of results.",
    errors={
        "EXPRESSION_ERROR": "`input_array` cannot be evaluated",
        "BAD_PARAMETER": "`input_array` is not a list",
        "LIMIT_EXCEEDED": "the list exceeds the item limit",
    },
    fans_out=True,
    window=lambda parameters: Window(parameters.get("max_in_flight"), parameters.get("batch_size", 1)),
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Fan out the items, or batches of them."""
    items, size = call.parameters.input_array, call.parameters.batch_size
    if size > 1:
        items = [items[start : start + size] for start in range(0, len(items), size)]
    if len(items) > call.limits.items:
        raise LimitExceededError("items of a split", call.limits.items, len(items))
    return FanOut(len(items), items)
