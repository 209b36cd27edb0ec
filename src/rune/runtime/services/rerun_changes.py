"""Changes of a rerun: another payload of its first node, other parameters, another version of the workflow, a
definition that is not stored, or pins.

A payload is not stored with the node that receives it but with the node that sent it. An edited payload therefore takes
the place of that output in the new execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.definition.model import Definition
from rune.core.definition.parser import NO_PINS, Pins
from rune.core.execution.fact import Fact, NodeResult
from rune.core.execution.rerun import MoveRef, carry_over, from_node, kept_results
from rune.core.execution.routing import routes
from rune.core.execution.stored_value import Inline, Same, StoredValue
from rune.core.execution.token import ROOT, START, Path, Ref
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.journal import BlobStore
from rune.runtime.payloads import check_start, decode_payload
from rune.runtime.stored_values import store_value

Results = Mapping[tuple[int, Path], NodeResult]


class RerunRefusedError(RuneError):
    """A change that cannot be applied to this execution."""

    code = "REFUSED"


class RerunChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is different in a rerun: `input`, `parameters` and `definition` are JSON texts, `version` is a number or an
    alias."""

    input: bytes | None = None
    parameters: bytes | None = None
    version: str | None = None
    definition: bytes | None = None
    pins: Pins = NO_PINS

    @property
    def unstored(self) -> bool:
        """Whether the rerun has a definition that is stored as no version."""
        return self.parameters is not None or self.definition is not None or self.pins != NO_PINS


UNCHANGED = RerunChanges()


class Replaced(msgspec.Struct, frozen=True):
    """A start payload and results in which an edited payload has been stored."""

    input: StoredValue
    kept: list[Fact]


async def replace_payload(
    plan: Plan,
    kept: Sequence[Fact],
    node: int,
    path: Path,
    edited: bytes,
    start: StoredValue,
    execution: str,
    blob: BlobStore,
) -> Replaced:
    """Return the start payload and the kept results of a rerun in which a node receives an edited payload."""
    decoded = await decode_payload(edited)
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    results = {(each.node, each.path): each for each in kept if isinstance(each, NodeResult)}
    sources = _sources(plan, results, node, path)
    values = {next(iter(sources)): edited}
    if plan.nodes[node].is_join:
        values = _by_source(plan.ids[node], decoded.value, sources)
    for name, value in values.items():
        source = sources[name]
        if source.kind == "start":
            await check_start(plan.definition, value)
            start = Inline(value)
            continue
        stored = await store_value(blob, f"{execution}/edited/{plan.ids[source.node]}", value, LIMITS)
        key = (source.node, source.path)
        results[key] = replace(results[key], value=stored, payload=None)
    others = [each for each in kept if not isinstance(each, NodeResult)]
    return Replaced(start, [*others, *results.values()])


def _sources(plan: Plan, results: Results, node: int, path: Path) -> dict[str, Ref]:
    """Return where the payloads of a node are stored, by the ids of the nodes before it."""
    planned, id = plan.nodes[node], plan.ids[node]
    if planned.joins_items:
        raise RerunRefusedError(
            f"`{id}` receives the items of a split; rerun a node inside the split instead"
        )
    found: dict[str, Ref] = {}
    for edge in planned.in_edges:
        before = plan.src[edge]
        if before in plan.triggers:
            found[plan.ids[before]] = START
            continue
        if plan.nodes[before].fans_out and planned.split == before:
            raise RerunRefusedError(
                f"`{id}` receives an item; rerun `{plan.ids[before]}` with another input instead"
            )
        result = results.get((before, path))
        if result is None or edge not in routes(plan.nodes[before], result).alive:
            continue
        if edge in plan.nodes[before].error_edges:
            raise RerunRefusedError(
                f"`{id}` receives the error of `{plan.ids[before]}`, which cannot be edited"
            )
        found[plan.ids[before]] = Ref("result", before, path)
        sent = result.payload
        # Of a node that passes on what it received, the source is edited, so that expressions which mention the source
        # see it. The branches of a join may have the same source, so that each is edited at its end.
        if sent is None or planned.is_join:
            continue
        if sent == START or (sent.kind == "result" and (sent.node, sent.path) in results):
            found[plan.ids[before]] = sent
    if not found:
        raise RerunRefusedError(f"`{id}` received no payload in this execution")
    return found


def _by_source(id: str, value: Any, sources: Mapping[str, Ref]) -> dict[str, bytes]:
    """Return the parts of the payload of a join, by the ids of the nodes before it."""
    if not isinstance(value, dict) or not value.keys() <= sources.keys():
        raise RerunRefusedError(f"the input of `{id}` is an object with members of {', '.join(sources)}")
    return {name: msgspec.json.encode(each) for name, each in value.items()}


async def with_parameters(definition: Definition, node: str, parameters: bytes) -> Definition:
    """Return a definition in which a node has other parameters; those that are not given stay."""
    decoded = await decode_payload(parameters)
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    if not isinstance(decoded.value, dict):
        raise RerunRefusedError("`parameters` is an object", code="BAD_BODY")
    nodes = tuple(
        replace(each, parameters={**each.parameters, **decoded.value}) if each.id == node else each
        for each in definition.nodes
    )
    return replace(definition, nodes=nodes)


def kept_by_rerun(
    before: Plan, plan: Plan, facts: Sequence[Fact], node: int, inside: Path, at: int
) -> list[Fact] | None:
    """Return the results that a rerun from a node keeps; None if it would run nothing. `plan` is that of the rerun,
    `before` that of the execution with these facts."""
    again: set[tuple[int, Path]] = set()
    changed: frozenset[int] = frozenset()
    if plan is not before:
        carried = carry_over(before, plan, facts, move_value)
        facts, again, changed = carried.results, carried.rerouted, carried.changed
        # The node may be one that the execution does not have, and then has no token to begin with.
        changed |= frozenset(() if inside else (node,))
    if node in plan.triggers:
        again |= {(each, ROOT) for each in plan.triggers}
    else:
        again |= from_node(plan, facts, node, inside)
    return kept_results(plan, facts, again, at, changed) if again or changed else None


def move_value(value: object, move: MoveRef) -> object:
    """Return a stored value in terms of another plan."""
    return Same(move(value.ref)) if isinstance(value, Same) else value
