"""`workflow`: another workflow as one step."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from rune.core.execution.outcome import Outcome, Output, Suspend
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """Which workflow, with what."""

    workflow: Annotated[str, Meta(min_length=1, description="Id of the workflow to start.")]
    version: Annotated[
        int | str | None,
        Meta(description="Version number or alias. Default: the one that is current at the start."),
    ] = None
    input: Annotated[
        Any | UnsetType, Meta(description="Its start payload. Default: the payload, `$json`.")
    ] = UNSET
    wait: Annotated[bool, Meta(description="Wait for its end; otherwise it runs on its own.")] = True


TYPE = declare(
    "workflow",
    Parameters,
    kinds={"wait": "literal"},
    summary="Runs another workflow.",
    doc="Starts a child execution and goes on with its output. Cancelling the parent cancels the child.",
    output="The child's output; with `wait: false` its `{execution_id}`.",
    errors={
        "CHILD_FAILED": "the child did not complete; its error is in the details",
        "UNKNOWN_WORKFLOW": "no such workflow or version",
        "INVALID_INPUT": "the child refuses its start payload",
        "LIMIT_EXCEEDED": "children are nested too deep",
    },
    effectful=lambda parameters: True,
    suspends=True,
    launches=True,
    reads_payload=lambda parameters: "input" not in parameters,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """Start it, and on the second run say how it ended."""
    parameters = call.parameters
    if call.resumed:
        return _ended(parameters.workflow, call.signal)
    which = None if parameters.version is None else str(parameters.version)
    input = call.payload if parameters.input is UNSET else parameters.input
    child = await call.launch(parameters.workflow, which, input, parameters.wait)
    return Suspend(signal=f"child:{child}") if parameters.wait else Output({"execution_id": child})


def _ended(workflow: str, said: dict[str, Any]) -> Outcome:
    if said["status"] == "completed":
        return Output(said["output"])
    message = f"`{workflow}` ended as {said['status']}"
    error = said["error"]
    if error:
        message += f": {error['message']}"
    raise NodeFailure(message, code="CHILD_FAILED", details=said)
