"""The `manual` node: a trigger for executions started by hand or through the API."""

from __future__ import annotations

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """No parameters."""


TYPE = declare(
    "manual",
    Parameters,
    summary="Starts an execution by hand or through the API.",
    doc="Passes the start payload through and activates all outgoing edges.",
    output="The start payload.",
    trigger=True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    return Output(call.payload)
