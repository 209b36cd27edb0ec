"""The `noop` node: passes its payload through unchanged."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """How the node is scheduled."""

    effectful: Annotated[
        bool,
        Meta(
            description="Send the node through the queue like one with external effects; for tests and benchmarks."
        ),
    ] = False


TYPE = declare(
    "noop",
    Parameters,
    kinds={"effectful": "literal"},
    summary="Does nothing.",
    doc="Passes the payload through. Useful as a join point or an edge target.",
    output="The payload.",
    effectful=lambda parameters: parameters.get("effectful") is True,
    passes_payload=lambda parameters: True,
    reads_payload=lambda parameters: True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    return Output(call.payload)
