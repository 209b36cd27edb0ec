"""`log`: a line for whoever watches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """What is said, and how loud."""

    message: Annotated[Any, Meta(description="Any value; what is not text is shown as JSON.")] = ""
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="How much it matters.")
    ] = "info"


TYPE = declare(
    "log",
    Parameters,
    kinds={"level": "literal"},
    summary="Writes a message to the execution's history.",
    doc="Resolves a message and records it. The payload passes through.",
    output="The message.",
    errors={"EXPRESSION_ERROR": "the message cannot be evaluated"},
    passes_payload=lambda parameters: True,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The message as it is, whatever its type."""
    return Output(call.parameters.message)
