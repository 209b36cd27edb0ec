"""The `log` node: records a message in the execution's history."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The message and its level."""

    message: Annotated[Any, Meta(description="Message; a value that is not text is shown as JSON.")] = ""
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Log level.")] = "info"


TYPE = declare(
    "log",
    Parameters,
    kinds={"level": "literal"},
    summary="Writes a message to the execution's history.",
    doc="Evaluates a message and records it. Passes the payload through.",
    output="The message.",
    errors={"EXPRESSION_ERROR": "the message cannot be evaluated"},
    passes_payload=lambda parameters: True,
    logs_output=True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Return the message unchanged, whatever its type."""
    return Output(call.parameters.message)
