"""The `aggregator` node: collects the results of a split's items into one list."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.core.node_type import JoinRule
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """Timeout and failure tolerance of the aggregator."""

    timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Seconds from the first arrival; 0: no timeout. Default: 300 s from the latest arrival."
        ),
    ] = None
    tolerate: Annotated[
        Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^(100|[0-9]{1,2})%$")] | None,
        Meta(description="Number or percentage (such as `25%`) of items that may fail. Default: all."),
    ] = None


TYPE = declare(
    "aggregator",
    Parameters,
    kinds={"timeout": "literal", "tolerate": "literal"},
    summary="Collects the results of a split.",
    doc="Waits until every item has ended and returns the results in item order: null for an item that ended on "
    "another branch, `{error}` for one that failed.",
    output="The results as a list, in item order.",
    errors={
        "TIMEOUT": "not all items ended before the timeout",
        "TOO_MANY_FAILURES": "more items failed than `tolerate` allows",
        "LIMIT_EXCEEDED": "the list exceeds the output size limit",
    },
    permanent=frozenset({"TOO_MANY_FAILURES"}),
    joins_items=True,
    join_rule=lambda parameters: JoinRule(
        "all", parameters.get("timeout"), tolerates=parameters.get("tolerate") is not None
    ),
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Collect the item results; fail if more items failed than `tolerate` allows."""
    results: list[Any] = []
    failed = 0
    for has_failed, value in call.entries():
        results.append(value)
        failed += has_failed
    tolerate = call.parameters.tolerate
    if tolerate is not None and _too_many(failed, len(results), tolerate):
        details = {"failed": failed, "total": len(results), "tolerated": tolerate}
        message = f"{failed} of {len(results)} items failed, tolerated: {tolerate}"
        raise NodeFailure(message, code="TOO_MANY_FAILURES", details=details)
    return Output(results)


def _too_many(failed: int, total: int, tolerate: int | str) -> bool:
    if isinstance(tolerate, str):
        return failed * 100 > int(tolerate[:-1]) * total
    return failed > tolerate
