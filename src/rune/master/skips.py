"""Skips: nodes that were skipped follow from everything else, so they are worked out once and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from rune.core.lineage import Path
from rune.runtime.history import History
from rune.runtime.reader import Reader

MOST_KEPT = 400_000  # skipped nodes, of all executions together
MOST_EXECUTIONS = 200
FEW = 2_000  # facts that are worked through at once
AT_ONCE = 500

Key = tuple[int, Path]


class _Known(msgspec.Struct, frozen=True):
    skipped: list[Key]
    seen: int  # the number of the last fact it follows from
    final: bool


class Skips:
    """What was skipped, by execution. Of one that goes on it is worked out only while that is little work."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, _Known] = OrderedDict()
        self._working = asyncio.Lock()

    async def at_hand(self, execution: str) -> bool:
        """Whether the answer costs little."""
        if execution in self._kept:
            return True
        return len(await self._reader.facts(execution, 0, FEW + 1)) <= FEW

    async def of(self, execution: str) -> list[Key]:
        """Which nodes were skipped, in the order of their lineages."""
        async with self._working:
            known = self._kept.get(execution)
            if known is None or not (known.final or await self._holds(execution, known)):
                known = await self._worked_out(execution)
                self._keep(execution, known)
            self._kept.move_to_end(execution)
            return known.skipped

    async def _holds(self, execution: str, known: _Known) -> bool:
        """Whether nothing was written since."""
        return not await self._reader.facts(execution, known.seen, 1)

    async def _worked_out(self, execution: str) -> _Known:
        history = await self._history(execution)
        if history is None:
            return _Known([], 0, False)
        few = history.size <= FEW
        skipped = history.skipped() if few else await asyncio.to_thread(history.skipped)
        return _Known(skipped, history.last, history.end is not None)

    async def _history(self, execution: str) -> History | None:
        """All of the past, read piece by piece; None if there is much and more to come."""
        summary = await self._reader.execution(execution)
        ended = summary is not None and summary.ended_at is not None
        history = await self._reader.history(execution, empty=True)
        async for stored in self._reader.pieces(execution, size=AT_ONCE):
            history.add(stored)
            if history.size > FEW and not ended:
                return None
        return history

    def _keep(self, execution: str, known: _Known) -> None:
        self._kept[execution] = known
        self._kept.move_to_end(execution)
        total = sum(len(each.skipped) for each in self._kept.values())
        while len(self._kept) > 1 and (total > MOST_KEPT or len(self._kept) > MOST_EXECUTIONS):
            _, dropped = self._kept.popitem(last=False)
            total -= len(dropped.skipped)
