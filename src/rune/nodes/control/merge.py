"""The `merge` node: joins several branches into one."""

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
    """Opens the merge at the k-th live arrival."""

    at_least: Annotated[int, Meta(ge=1, description="Number of live arrivals that open the merge.")]


class Parameters(Model, kw_only=True, frozen=True):
    """When the merge opens and how payloads are combined."""

    mode: Annotated[
        Literal["append", "object", "combine"],
        Meta(
            description="Combine payloads into a list in edge order (`append`), an object keyed by predecessor id "
            "(`object`), or one merged object in which later payloads win (`combine`)."
        ),
    ] = "append"
    wait_mode: Annotated[
        Literal["wait_for_all", "wait_for_any"] | AtLeast,
        Meta(description="Wait for all branches, the first, or the first k."),
    ] = "wait_for_all"
    timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Timeout in seconds; 0 disables it. Default: 300 from the first arrival, none for "
            "`wait_for_any`."
        ),
    ] = None
    cancel_losers: Annotated[
        bool, Meta(description="When the merge opens, cancel running nodes on branches that lead only to it.")
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
    summary="Joins branches and combines their payloads.",
    doc="Runs once, when its branches have arrived. A branch that was not taken counts as arrived and adds no "
    "payload.",
    output="The combined payloads, as set by `mode`; with `wait_for_any` the first payload.",
    errors={
        "TIMEOUT": "the branches did not arrive before the timeout",
        "UNREACHABLE": "fewer than `at_least` branches can still arrive",
        "NOT_AN_OBJECT": "`combine` received a payload that is not an object",
    },
    permanent=frozenset({"NOT_AN_OBJECT", "UNREACHABLE"}),
    merges=True,
    reads_payload=lambda parameters: True,
    join_rule=lambda parameters: JoinRule(
        _opens(parameters), parameters.get("timeout"), parameters.get("cancel_losers", False)
    ),
)


def run(call: NodeCall[Parameters]) -> Outcome:
    """Combine the payloads of the branches that opened the merge."""
    arrivals = call.arrivals()
    if call.parameters.wait_mode == "wait_for_any":
        return Output(arrivals[0][1])
    if call.parameters.mode == "append":
        return Output([payload for _, payload in arrivals])
    if call.parameters.mode == "object":
        combined = dict(arrivals)
        # That of several branches is the payload, which is stored by reference.
        return Output(call.payload if len(combined) > 1 else combined)
    return Output(_combine(arrivals))


def _combine(arrivals: list[tuple[str, Any]]) -> dict[str, Any]:
    union: dict[str, Any] = {}
    for source, payload in arrivals:
        if type(payload) is not dict:
            message = f"only objects can be combined; `{source}` sent {describe_value(payload)}"
            raise NodeFailure(message, code="NOT_AN_OBJECT")
        union.update(payload)
    return union
