"""After the server lost its data, enters every execution that has not ended into the timer index, so that the scheduler
rebuilds it when it is due, which is at once unless all of its tokens wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import KeySpace
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.state")

PAGE_SIZE = 500

DUE_LANES = 8
"""Executions whose due time is computed at once. Their folds run one after the other in the event loop."""

TURN_S = 1.0
"""After this time timers are fired before further pages are recovered."""

LEASE_MS = 10_000
"""How long a process may take to recover one page."""

PROGRESS_TTL_S = 30 * 86_400
"""Progress of past server runs expires; to recover a run twice does no harm."""

COMPLETE = "*"
"""Progress after the last page; no execution id equals it."""

RunningExecutions = Callable[[str, int], Awaitable[Sequence[tuple[str, int | None]]]]
"""Returns up to `limit` executions that have not ended, ordered by id, after an id, each with the time (epoch ms) at
which some token of it waits; None: none waits for a time."""

DueTime = Callable[[str], Awaitable[int | None]]
"""Returns when an execution is due (epoch ms), all of whose tokens wait; None: one of them can run now."""


class _Progress(msgspec.Struct):
    """How far the recovery of a server run has got: `reached` is the last execution that was entered."""

    part: int
    key: str
    reached: str


class WipeRecovery:
    """Schedules all running executions once in each run of the server, page by page, by any process. On a Redis Cluster
    each partition has its own progress, because any of its servers may lose data or be replaced by a replica."""

    def __init__(
        self,
        client: Client,
        keys: KeySpace,
        running_executions: RunningExecutions | None,
        due_time: DueTime,
    ) -> None:
        self._client = client
        self._keys = keys
        self._running_executions = running_executions
        self._due_time = due_time
        self._parts = range(keys.partitions if client.clustered else 1)

    async def is_due(self) -> bool:
        """Return whether pages are left. A wiped server has lost the recorded progress too, so recovery restarts."""
        if self._running_executions is None:
            return False
        return bool(await self._unfinished())

    async def _unfinished(self) -> list[_Progress]:
        found = await self._client.gather(*(self._progress(part) for part in self._parts))
        return [each for each in found if each.reached != COMPLETE]

    async def _progress(self, part: int) -> _Progress:
        run, _ = await self._client.server_run(self._keys.due(part))
        key = self._keys.recovered(run, part if self._client.clustered else None)
        return _Progress(part, key, (await self._client.call("GET", key) or b"").decode())

    async def work(self) -> None:
        """Recover remaining pages for TURN_S unless another process does. Executions that are due earlier stay
        so."""
        ends_at = time.monotonic() + TURN_S
        while self._running_executions is not None and (left := await self._unfinished()):
            reached = min(each.reached for each in left)
            leased = [
                each
                for each in await self._client.gather(
                    *(self._lease(each) for each in left if each.reached == reached)
                )
                if each is not None
            ]
            if not leased:
                return
            rows = await self._due_times(await self._running_executions(reached, PAGE_SIZE))
            await self._client.gather(*(self._recover_page(each, rows) for each in leased))
            if time.monotonic() > ends_at:
                return

    async def _due_times(self, rows: Sequence[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
        """Return when each execution is due. One that waits for a time may have another token that can run now, or a
        timer of its own that is due earlier, so its state decides."""
        found = dict(rows)
        waiting = iter([execution for execution, waits_until in rows if waits_until is not None])

        async def lane() -> None:
            for each in waiting:
                try:
                    found[each] = await self._due_time(each)
                except StoreUnavailableError:
                    raise
                except Exception as error:
                    # Reported when it is rebuilt.
                    log.debug("the due time of %s is unknown: %s", each, error)
                    found[each] = None

        await asyncio.gather(*(lane() for _ in range(DUE_LANES)))
        return list(found.items())

    async def _lease(self, progress: _Progress) -> _Progress | None:
        """Take the lease of a page and read the progress again; return None if another process has the lease."""
        leased = await self._client.call("SET", f"{progress.key}:lease", "1", "NX", "PX", LEASE_MS)
        if leased is None:
            return None
        reached = (await self._client.call("GET", progress.key) or b"").decode()
        if reached == progress.reached:
            return progress
        await self._client.call("DEL", f"{progress.key}:lease")
        return None

    async def _recover_page(self, progress: _Progress, rows: Sequence[tuple[str, int | None]]) -> None:
        times: dict[str, list[str | int]] = {}
        for execution, when in rows:
            part = self._keys.partition(execution)
            if part == progress.part or not self._client.clustered:
                times.setdefault(self._keys.due(part), []).extend((when or 0, execution))
        for key, pairs in times.items():
            await self._client.call("ZADD", key, "LT", *pairs)
        reached = rows[-1][0] if len(rows) == PAGE_SIZE else COMPLETE
        await self._client.call("SET", progress.key, reached, "EX", PROGRESS_TTL_S)
        await self._client.call("DEL", f"{progress.key}:lease")
