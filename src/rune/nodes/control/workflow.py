"""`workflow`: another workflow as one step."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from rune.nodes.declare import Model, declare


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
    reads_payload=lambda parameters: "input" not in parameters,
)
