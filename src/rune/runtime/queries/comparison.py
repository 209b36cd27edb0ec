"""Compares two executions run by run: groups of differences first, the single runs in pages behind.

Results are compared as they are stored. Only values that are not in the journal itself are read for it, one pair at a
time, so that executions with 100,000 items can be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import msgspec

from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline, Same
from rune.core.execution.token import Path, Ref, path_text
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError
from rune.runtime.execution_data import ExecutionData
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded

T = TypeVar("T")

MAX_COMPARED_RESULTS = 1_000_000  # of one execution
RUNS_PER_TURN = 500
MAX_LINEAGES = 10  # that are named in a group

Key = tuple[str, str]
"""Node id and lineage."""

Field = Literal["status", "outlet", "items", "attempts", "output", "error"]


class RunDifference(msgspec.Struct, frozen=True):
    """A run that differs; None on the side where the node has no result."""

    node: str
    lineage: str
    fields: tuple[Field, ...]
    before: NodeResult | None
    after: NodeResult | None


class DifferenceGroup(msgspec.Struct):
    """Runs of a node that differ in the same way: the same fields, statuses and error codes."""

    node: str
    fields: tuple[Field, ...]
    statuses: tuple[str | None, str | None]
    codes: tuple[str, str]
    count: int = 0
    lineages: list[str] = []


class Results:
    """The results of one execution by node and lineage, in the order in which they were recorded."""

    def __init__(self, data: ExecutionData) -> None:
        self.data = data
        self.plan: Plan = data.plan
        self.by_key: dict[Key, NodeResult] = {}
        self._by_token: dict[tuple[int, Path], NodeResult] = {}
        self._digests: dict[Ref, bytes] = {}

    def add(self, result: NodeResult) -> None:
        self._by_token.setdefault((result.node, result.path), result)
        if result.status == "skipped":
            return
        if len(self.by_key) >= MAX_COMPARED_RESULTS:
            raise LimitExceededError("results of a compared execution", MAX_COMPARED_RESULTS)
        key = (self.plan.ids[result.node], path_text(result.path, self.plan.ids))
        self.by_key.setdefault(key, result)

    async def encoded(self, result: NodeResult) -> bytes:
        """Return the output of a result as JSON."""
        return await self._read(lambda reader: reader.encoded(result))

    async def joined(self, result: NodeResult) -> bytes | None:
        """Return the digest of an output that is the payload of a join; None for another output."""

        def digest(reader: ValueReader) -> bytes | None:
            stored = result.value
            origin = reader.origin(stored.ref) if type(stored) is Same else None
            if origin is None or origin.kind != "entered":
                return None
            return reader.digest(origin, self._digests)

        return await self._read(digest)

    async def _read(self, query: Callable[[ValueReader], T]) -> T:
        reader = self.data.reader()
        reader.fetched = self._by_token  # nothing that was read has to be read again
        while True:
            try:
                return query(reader)
            except ValueNotLoaded as missing:
                await self.data.load(missing.what, reader)


class Comparison:
    """The differences between two executions, in the order of the runs of the first."""

    def __init__(self, compared: int, runs: list[RunDifference]) -> None:
        self.compared = compared
        self.runs = runs

    @property
    def first(self) -> RunDifference | None:
        """The first run that differs."""
        return self.runs[0] if self.runs else None

    def groups(self) -> list[DifferenceGroup]:
        """Return the kinds of differences, in the order of their first run."""
        found: dict[tuple[object, ...], DifferenceGroup] = {}
        for run in self.runs:
            statuses = (_status(run.before), _status(run.after))
            codes = (_code(run.before), _code(run.after))
            key = (run.node, run.fields, statuses, codes)
            group = found.setdefault(key, DifferenceGroup(run.node, run.fields, statuses, codes, 0, []))
            group.count += 1
            if len(group.lineages) < MAX_LINEAGES:
                group.lineages.append(run.lineage)
        return list(found.values())

    def of(self, node: str | None) -> Iterator[tuple[int, RunDifference]]:
        """Yield the differences of one node, or all, with their places."""
        for place, run in enumerate(self.runs):
            if node is None or run.node == node:
                yield place, run


async def compare(before: Results, after: Results) -> Comparison:
    """Compare all results of two executions."""
    keys = dict.fromkeys((*before.by_key, *after.by_key))
    runs: list[RunDifference] = []
    for number, key in enumerate(keys):
        old, new = before.by_key.get(key), after.by_key.get(key)
        fields = await _differing(before, after, old, new)
        if fields:
            runs.append(RunDifference(*key, fields, old, new))
        if number % RUNS_PER_TURN == 0:
            await asyncio.sleep(0)
    return Comparison(len(keys), runs)


async def _differing(
    before: Results, after: Results, old: NodeResult | None, new: NodeResult | None
) -> tuple[Field, ...]:
    if old is None or new is None:
        return ("status",)
    found: list[Field] = []
    if old.status != new.status:
        found.append("status")
    elif old.outlet != new.outlet:
        found.append("outlet")
    elif old.items != new.items:
        found.append("items")
    if old.attempt != new.attempt:
        found.append("attempts")
    if old.status == new.status == "ok" and not await _same_output(before, after, old, new):
        found.append("output")
    if (_code(old), _message(old)) != (_code(new), _message(new)):
        found.append("error")
    return tuple(found)


async def _same_output(before: Results, after: Results, old: NodeResult, new: NodeResult) -> bool:
    one, other = old.value, new.value
    if type(one) is Inline and type(other) is Inline:
        return bool(one.data == other.data)
    if type(one) is type(other) is not Same and one == other:
        return True  # the same blob: a rerun keeps results by reference
    digests = await before.joined(old), await after.joined(new)
    if None not in digests:
        return digests[0] == digests[1]
    return await before.encoded(old) == await after.encoded(new)


def _status(result: NodeResult | None) -> str | None:
    return None if result is None else result.status


def _code(result: NodeResult | None) -> str:
    return "" if result is None or result.failure is None else result.failure.code


def _message(result: NodeResult) -> str:
    return "" if result.failure is None else result.failure.message
