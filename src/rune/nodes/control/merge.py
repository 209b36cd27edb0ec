"""`merge`: several branches become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from rune.core.execution.outcome import Outcome, Output
from rune.core.node_type import Join, JoinRule
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.schema import Model, declare, describe_value


class AtLeast(Model, kw_only=True, frozen=True):
    """Open at the k-th live arrival."""

    at_least: Annotated[int, Meta(ge=1, description="How many live arrivals open the merge.")]


class Parameters(Model, kw_only=True, frozen=True):
    """What opens the merge and how the payloads are put together."""

    mode: Annotated[
        Literal["append", "object", "combine"],
        Meta(
            description="A list in edge order, an object by predecessor id, or one object in which later "
            "ones win."
        ),
    ] = "append"
    wait_mode: Annotated[
        Literal["wait_for_all", "wait_for_any"] | AtLeast,
        Meta(description="Wait for all branches, for the first, or for the first k."),
    ] = "wait_for_all"
    timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Seconds until it gives up; 0: none. Default: 300 from the first arrival, none for "
            "the first."
        ),
    ] = None
    cancel_losers: Annotated[
        bool, Meta(description="When it opens, cancel what still runs on branches that lead only here.")
    ] = False


def _opens(parameters: Mapping[str, Any]) -> Join:
    wait_mode = parameters.get("wait_mode", "wait_for_all")
    if isinstance(wait_mode, Mapping):
        least: int = wait_mode["at_least"]
        return least
    return "any" if wait_mode == "wait_for_any" else "all"


TYPE = declare(
    "merge",
    Parameters,
    kinds=dict.fromkeys(("mode", "wait_mode", "timeout", "cancel_losers"), "literal"),
    summary="Joins branches and puts their payloads together.",
    doc="Runs once, when its branches have arrived: a branch that was not taken counts as arrived and "
    "brings nothing.",
    output="The payloads that arrived, as `mode` says; with `wait_for_any` the first one.",
    errors={
        "TIMEOUT": "the branches did not arrive in time",
        "UNREACHABLE": "fewer branches than `at_least` asks for can still arrive",
        "NOT_AN_OBJECT": "`combine` was given something else",
    },
    merges=True,
    reads_payload=lambda parameters: True,
    join_rule=lambda parameters: JoinRule(
        _opens(parameters), parameters.get("timeout"), parameters.get("cancel_losers", False)
    ),
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """The payloads of the branches that opened it, put together."""
    arrivals = call.arrivals()
    if call.parameters.wait_mode == "wait_for_any":
        return Output(arrivals[0][1])
    if call.parameters.mode == "append":
        return Output([payload for _, payload in arrivals])
    if call.parameters.mode == "object":
        return Output(dict(arrivals))
    return Output(_combined(arrivals))


def _combined(arrivals: list[tuple[str, Any]]) -> dict[str, Any]:
    union: dict[str, Any] = {}
    for source, payload in arrivals:
        if type(payload) is not dict:
            message = f"only objects combine; `{source}` brought {describe_value(payload)}"
            raise NodeFailure(message, code="NOT_AN_OBJECT")
        union.update(payload)
    return union
