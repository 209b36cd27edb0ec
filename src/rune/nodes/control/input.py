"""The `input` node: makes the start payload available under a node id."""

from __future__ import annotations

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """No parameters."""


TYPE = declare(
    "input",
    Parameters,
    summary="Provides the start payload as a node.",
    doc="Passes the start payload through and activates all outgoing edges.",
    output="The start payload.",
    trigger=True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    return Output(call.payload)
