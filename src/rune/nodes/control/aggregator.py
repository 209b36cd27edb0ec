"""`aggregator`: the results of a split's items as one list."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.core.node_type import JoinRule
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """How long to wait, and how much failure to bear."""

    timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Seconds from the first arrival; 0: none. Default: 300 s from the latest arrival."),
    ] = None
    tolerate: Annotated[
        Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^(100|[0-9]{1,2})%$")] | None,
        Meta(description="How many items may fail, as a count or a share such as `25%`. Default: all."),
    ] = None


TYPE = declare(
    "aggregator",
    Parameters,
    kinds={"timeout": "literal", "tolerate": "literal"},
    summary="Gathers the items of a split.",
    doc="Waits until every item has ended and gives their results in the order of the items: null for one "
    "that ended "
    "elsewhere, `{error}` for one that failed.",
    output="The ordered list.",
    errors={
        "TIMEOUT": "not all items ended in time",
        "TOO_MANY_FAILURES": "more items failed than `tolerate` allows",
        "LIMIT_EXCEEDED": "the list is larger than an output may be",
    },
    joins_items=True,
    join_rule=lambda parameters: JoinRule("all", parameters.get("timeout")),
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The list, unless more items failed than is borne."""
    gathered: list[Any] = []
    failed = 0
    for unhappy, value in call.entries():
        gathered.append(value)
        failed += unhappy
    tolerate = call.parameters.tolerate
    if tolerate is not None and _too_many(failed, len(gathered), tolerate):
        details = {"failed": failed, "total": len(gathered), "tolerated": tolerate}
        message = f"{failed} of {len(gathered)} items failed, tolerated: {tolerate}"
        raise NodeFailure(message, code="TOO_MANY_FAILURES", details=details)
    return Output(gathered)


def _too_many(failed: int, total: int, tolerate: int | str) -> bool:
    if isinstance(tolerate, str):
        return failed * 100 > int(tolerate[:-1]) * total
    return failed > tolerate
