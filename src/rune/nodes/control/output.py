"""The `output` node: sets the output of the execution."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from rune.core.execution.outcome import Outcome, Output
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The value to return."""

    value: Annotated[
        Any | UnsetType, Meta(description="The execution's output. Default: the payload, `$json`.")
    ] = UNSET


TYPE = declare(
    "output",
    Parameters,
    summary="Sets the execution's output.",
    doc="Its value becomes the output of the execution. A workflow may not contain two output nodes that can both "
    "run, nor one inside a split.",
    output="The value.",
    sets_output=True,
    reads_payload=lambda parameters: "value" not in parameters,
)


def run(call: NodeCall[Parameters]) -> Outcome:
    value = call.parameters.value
    return Output(call.payload if value is UNSET else value)
