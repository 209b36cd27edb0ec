"""`fail`: a failure on purpose."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rune.core.execution.outcome import Error, Failure, Outcome
from rune.core.expr import to_text
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The failure."""

    message: Annotated[Any, Meta(description="What the error says.")] = "failed"
    code: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.-]+$",
            description="The error's code, for `retry.on` and for error handling.",
        ),
    ] = "FAILED"


TYPE = declare(
    "fail",
    Parameters,
    summary="Fails.",
    doc="Always ends as failed with the given code and message; its error policy decides what follows.",
    output="None: it never succeeds.",
    errors={"FAILED": "the default of `code`"},
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The failure; a message that is no text is told as JSON."""
    return Failure(Error(call.parameters.code, to_text(call.parameters.message)))
