"""The `fail` node: fails deliberately."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rune.core.execution.outcome import Error, Failure, Outcome
from rune.core.expr.values import write_text
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The error to fail with."""

    message: Annotated[Any, Meta(description="Error message.")] = "failed"
    code: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.-]+$",
            description="Error code, matched by `retry.on` and error handling.",
        ),
    ] = "FAILED"


TYPE = declare(
    "fail",
    Parameters,
    summary="Fails deliberately.",
    doc="Always fails with the given code and message; the node's error policy decides what happens next.",
    output="None; the node never succeeds.",
    errors={"FAILED": "the default `code`"},
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Fail; a message that is not text is rendered as JSON."""
    return Failure(Error(call.parameters.code, write_text(call.parameters.message, call.meter)))
