"""`noop`: nothing."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """How it travels."""

    effectful: Annotated[
        bool,
        Meta(
            description="Travel through the queue like a node that reaches outside; for tests and benchmarks."
        ),
    ] = False


TYPE = declare(
    "noop",
    Parameters,
    kinds={"effectful": "literal"},
    summary="Does nothing.",
    doc="The payload passes through. A place to join branches or to hang an edge on.",
    output="The payload.",
    effectful=lambda parameters: parameters.get("effectful") is True,
    passes_payload=lambda parameters: True,
    reads_payload=lambda parameters: True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The payload."""
    return Output(call.payload)
