"""The `workflow` node: runs another workflow as one step."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from rune.core.execution.outcome import Outcome, Output, Suspend
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare


class Parameters(Model, kw_only=True, frozen=True):
    """The workflow to start and its input."""

    workflow: Annotated[str, Meta(min_length=1, description="Id of the workflow to start.")]
    version: Annotated[
        int | str | None,
        Meta(description="Version number or alias. Default: the current version when the child starts."),
    ] = None
    input: Annotated[
        Any | UnsetType, Meta(description="Start payload of the child. Default: the payload, `$json`.")
    ] = UNSET
    wait: Annotated[bool, Meta(description="Wait for the child to end; otherwise it runs independently.")] = (
        True
    )


TYPE = declare(
    "workflow",
    Parameters,
    kinds={"wait": "literal"},
    summary="Runs another workflow.",
    doc="Starts a child execution and continues with its output. Cancelling the parent cancels the child.",
    output="The child's output; with `wait: false` its `{execution_id}`.",
    errors={
        "CHILD_FAILED": "the child did not complete; its error is in the details",
        "CHILD_FORBIDDEN": "the workflow is outside of the scope of the key that deployed this one, and does not list"
        " it in `callable_by`",
        "UNKNOWN_WORKFLOW": "no such workflow or version",
        "INVALID_INPUT": "the child rejects its start payload",
        "LIMIT_EXCEEDED": "child executions are nested too deeply",
    },
    effectful=lambda parameters: True,
    suspends=True,
    signals=lambda node, parameters: (),  # it waits for the end of its child only
    launches=True,
    reads_payload=lambda parameters: "input" not in parameters,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """Start the child; when resumed, return how it ended."""
    parameters = call.parameters
    if call.resumed:
        return _child_outcome(parameters.workflow, call.signal)
    version = None if parameters.version is None else str(parameters.version)
    input = call.payload if parameters.input is UNSET else parameters.input
    child = await call.launch(parameters.workflow, version, input, parameters.wait)
    return Suspend(signal=f"child:{child}") if parameters.wait else Output({"execution_id": child})


def _child_outcome(workflow: str, ending: dict[str, Any]) -> Outcome:
    if ending["status"] == "completed":
        return Output(ending["output"])
    message = f"`{workflow}` ended as {ending['status']}"
    error = ending["error"]
    if error:
        message += f": {error['message']}"
    raise NodeFailure(message, code="CHILD_FAILED", details=ending)
