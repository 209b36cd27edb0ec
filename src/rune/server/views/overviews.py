"""Overviews of single executions, kept for the next request.

The first request for an overview reads all facts of an execution, later ones only those that were added. Those that
were read last are kept, within a limit on their size; one that only a stream of roll-ups reads is dropped with the last
subscriber. The overview of a long execution that has ended is stored beside its blobs, so that no process reads its
facts for it again; retention removes it with the execution.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict

from rune.off_loop import off_loop
from rune.ports.journal import StoreUnavailableError
from rune.runtime.engine import Engine
from rune.runtime.queries.overview import Overview
from rune.runtime.queries.reader import ExecutionReader
from rune.server.views.node_runs import CLAIMS_WRITTEN_S

log = logging.getLogger("rune.server.views.overviews")

MAX_CACHED_BYTES = 96 * 1024 * 1024
MAX_REPLAYS = 8
MIN_STORED_FACTS = 2_000  # shorter executions are computed as quickly as they are read
BATCH_SIZE = 500  # facts per turn of the event loop
BLOB = "#overview"


class OverviewCache:
    """The overviews of one server process."""

    def __init__(self, engine: Engine, reader: ExecutionReader) -> None:
        self._blob = engine.backend.blob
        self._reader = reader
        self._cached: OrderedDict[str, Overview] = OrderedDict()
        self._replays: OrderedDict[str, Overview] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._stored: set[str] = set()
        self._requested: set[str] = set()  # cached for the next request

    async def of(self, execution: str, *, followed: bool = False) -> Overview:
        """Return the overview of an execution up to now. `followed`: it is read until `release`, not by a request."""
        lock = self._locks.setdefault(execution, asyncio.Lock())
        try:
            async with lock:
                found = self._cached.get(execution) or await self._load(execution)
                await self._follow(execution, found)
                await self._add_claims(execution, found)
                self._cache(execution, found)
                if not followed:
                    self._requested.add(execution)
                await self._store(execution, found)
                return found
        finally:
            if not lock.locked():
                self._locks.pop(execution, None)

    def release(self, execution: str) -> None:
        """Drop the overview of an execution that nobody follows any more, unless a request has read it."""
        if execution not in self._requested:
            self._cached.pop(execution, None)
            self._stored.discard(execution)

    async def at(self, execution: str, number: int) -> Overview:
        """Return the overview of an execution as it was after an event."""
        newest = self._cached.get(execution)
        if newest is not None and newest.number <= number:
            return await self.of(execution)
        replay = self._replays.pop(execution, None)
        if replay is None or replay.number > number:
            replay = await self._new(execution)
        await self._follow(execution, replay, number)
        await self._add_claims(execution, replay)
        self._replays[execution] = replay
        if len(self._replays) > MAX_REPLAYS:
            self._replays.popitem(last=False)
        return replay

    async def _new(self, execution: str) -> Overview:
        accepted = await self._reader.accepted(execution)
        return Overview(await self._reader.plan(execution), accepted.at)

    async def _load(self, execution: str) -> Overview:
        """Return the stored overview, or an empty one."""
        made = await self._new(execution)
        summary = await self._reader.execution(execution)
        if summary is None or summary.ended_at is None:
            return made
        data = await self._blob.get(f"{execution}/{BLOB}")
        stored = None if data is None else Overview.decode(made.plan, made.started_at, data)
        if stored is None:
            return made
        self._stored.add(execution)
        return stored

    async def _follow(self, execution: str, overview: Overview, until: int | None = None) -> None:
        while until is None or overview.number < until:
            size = BATCH_SIZE if until is None else min(BATCH_SIZE, until - overview.number)
            stored = await self._reader.facts(execution, overview.last, size)
            for each in stored:
                overview.add(each)
            if len(stored) < size:
                return
            await asyncio.sleep(0)

    async def _add_claims(self, execution: str, overview: Overview) -> None:
        """Add what workers ran when the execution ended; they write it up to some seconds after the end."""
        end = overview.end
        if end is None or end.status == "completed" or execution in self._stored:
            return
        overview.add_claims(await self._reader.open_claims(execution))

    def _cache(self, execution: str, overview: Overview) -> None:
        self._cached[execution] = overview
        self._cached.move_to_end(execution)
        total = sum(each.size for each in self._cached.values())
        while len(self._cached) > 1 and total > MAX_CACHED_BYTES:
            dropped, old = self._cached.popitem(last=False)
            self._stored.discard(dropped)
            self._requested.discard(dropped)
            total -= old.size

    async def _store(self, execution: str, overview: Overview) -> None:
        if not overview.final or overview.number < MIN_STORED_FACTS or execution in self._stored:
            return
        end = overview.end
        assert end is not None
        if end.status != "completed" and time.time() * 1000 - end.at < CLAIMS_WRITTEN_S * 1000:
            return
        self._stored.add(execution)
        data = await off_loop(overview.encode)
        try:
            await self._blob.put(f"{execution}/{BLOB}", data)
        except StoreUnavailableError as error:
            # It is computed again when it is needed next.
            log.warning("the overview of %s cannot be stored: %s", execution, error)
