"""The `workflow` node: runs another workflow as one step."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rune.core.execution.fact import CHILD_SIGNAL
from rune.core.execution.outcome import Outcome, Output, Suspend
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare

CHILD_FAILED = "CHILD_FAILED"


class _ChildError(msgspec.Struct):
    """The error of a child."""

    code: str
    message: str
    details: Any = None


class _ChildEnd(msgspec.Struct):
    """How a child ended."""

    workflow_id: str
    status: str
    error: _ChildError | None = None


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
        CHILD_FAILED: "the child did not complete; its error is in the details",
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
    return Suspend(signal=f"{CHILD_SIGNAL}{child}") if parameters.wait else Output({"execution_id": child})


def _child_outcome(workflow: str, ending: dict[str, Any]) -> Outcome:
    if ending["status"] == "completed":
        return Output(ending["output"])
    details = {**ending, "workflow_id": workflow}
    path = [msgspec.convert(details, _ChildEnd)]
    while (inner := _end_in(path[-1].error)) is not None:
        path.append(inner)
    last = path[-1]
    message = " → ".join(f"`{each.workflow_id}`" for each in path) + f" ended as {last.status}"
    if last.error is not None:
        message += f": {last.error.message}"
    raise NodeFailure(message, code=CHILD_FAILED, details=details)


def _end_in(error: _ChildError | None) -> _ChildEnd | None:
    """Return how the child ended whose failure an error reports; None for an error of another kind."""
    if error is None or error.code != CHILD_FAILED:
        return None
    try:
        return msgspec.convert(error.details, _ChildEnd)
    except msgspec.ValidationError:  # another node failed with this code
        return None
