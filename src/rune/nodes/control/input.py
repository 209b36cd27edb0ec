"""`input`: the start payload, under a name of its own."""

from __future__ import annotations

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """None."""


TYPE = declare(
    "input",
    Parameters,
    summary="The start payload as a node.",
    doc="Passes the start payload on. All of its out-edges start.",
    output="The start payload.",
    trigger=True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The start payload, as it came."""
    return Output(call.payload)
