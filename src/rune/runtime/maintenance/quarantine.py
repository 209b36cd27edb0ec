"""Keeps executions that block the event loop from running: a restart would resume them, and they would block it again.

An execution in quarantine is paused, by a fact that states why, before the workers of the process start. It shows as
any paused execution, and `rune resume` continues it. Which executions blocked the loop is noted outside of the loop at
the time it is blocked, because a loop that is blocked for good notes nothing any more.

On a cluster the next process is another worker, which runs already. Schedulers look at the notes of all processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError, UnknownExecutionError
from rune.ports.processes import BlockMarks

log = logging.getLogger("rune.quarantine")

BLOCKS = 2
"""An execution that blocked the loop so often is paused."""

BLOCKED_TWICE = "it blocked the event loop twice"
NAMED = "it was named with --quarantine"

PERIOD_S = 2.0
"""How often a scheduler looks at the notes of other processes."""

TIDY_PERIODS = 1800

Pause = Callable[[str, str], Awaitable[bool]]
"""Pause an execution, for a reason."""


class Quarantine:
    """The executions that this process has paused because they block its event loop."""

    def __init__(self, pause: Pause, marks: BlockMarks, named: Iterable[str] = ()) -> None:
        self._pause = pause
        self._marks = marks
        self._named = tuple(named)
        self._pausing: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Pause the named executions, and those that blocked earlier processes, before anything runs."""
        for execution in self._named:
            await self._add(execution, NAMED)
        await self._add_noted()

    async def run(self) -> None:
        """Pause executions that blocked other processes, until cancelled."""
        turn = 0
        while True:
            await self._add_noted(tidy=turn % TIDY_PERIODS == 0)
            turn += 1
            await asyncio.sleep(PERIOD_S)

    async def _add_noted(self, *, tidy: bool = False) -> None:
        """Pause the executions that have blocked a loop too often."""
        try:
            if tidy:
                await self._marks.tidy()
            await self._marks.refresh()
        except StoreUnavailableError as error:
            log.warning("store unavailable, nothing is quarantined: %s", error.message)
            return
        for execution, count in self._marks.blocks().items():
            if count >= BLOCKS:
                await self._add(execution, BLOCKED_TWICE)

    def suspect(self, execution: str) -> None:
        """Note that an execution has blocked the loop for a second, in case the process is killed. Called in another
        thread, as `clear` when the loop runs again, and `note`."""
        self._marks.suspect(execution)

    def clear(self, execution: str) -> None:
        """Forget what `suspect` noted."""
        self._marks.clear(execution)

    def note(self, execution: str, loop: asyncio.AbstractEventLoop) -> None:
        """Note that an execution blocks the loop. Called in another thread while it does; with the second time, the
        execution is paused as soon as the loop runs again."""
        count = self._marks.add(execution)
        log.error("%s blocks the event loop (%d times so far)", execution, count)
        if count >= BLOCKS:
            loop.call_soon_threadsafe(self._add_later, execution)

    def _add_later(self, execution: str) -> None:
        task = asyncio.ensure_future(self._add(execution, BLOCKED_TWICE))
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def _add(self, execution: str, reason: str) -> None:
        try:
            try:
                await self._pause(execution, reason)
            except StoreUnavailableError:
                raise
            except (RuneError, UnknownExecutionError) as error:
                log.warning("%s cannot be quarantined: %s", execution, error)
                await self._marks.forget(execution)
                return
            await self._marks.quarantine(execution, reason)
        except StoreUnavailableError as error:
            log.warning("%s is not quarantined yet: %s", execution, error.message)
            return
        log.error(
            "%s is in quarantine: %s. It is paused; `rune resume %s` continues it",
            execution,
            reason,
            execution,
        )
