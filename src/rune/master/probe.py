"""The probe: whether the stores were reached lately."""

from __future__ import annotations

import asyncio
import logging
import time

from rune.runtime.engine import Engine
from rune.runtime.reader import Reader

log = logging.getLogger("rune.master.probe")

HEARTBEAT = 5.0  # s
MISSED = 2


class Probe:
    """Touches the stores with every heartbeat: through a reader where there is one, or else as the engine does. With
    `beating` the engine's own heartbeat must have been taken too."""

    def __init__(self, engine: Engine, reader: Reader | None = None, *, beating: bool = False) -> None:
        self._state = engine.backend.state
        self._journal = engine.backend.journal
        self._heartbeat = engine.heartbeat if beating else None
        self._reader = reader
        self._touched: float | None = None
        self.reason = "only just starting, or held up"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.touch()
            await asyncio.sleep(HEARTBEAT)

    async def touch(self) -> None:
        """Reach for the stores once."""
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self._state.next_due()
                await self._look()
        except Exception as error:
            # Whatever it was: a probe that dies would leave the last answer standing.
            self.reason = f"a store does not answer: {str(error) or type(error).__name__}"
            log.warning("a store does not answer: %s", error)
            return
        self._touched = time.monotonic()

    async def _look(self) -> None:
        if self._reader is None:
            await self._journal.accepted("")
        else:
            await self._reader.executions(limit=1)

    @property
    def ready(self) -> bool:
        """Whether the stores answered within two heartbeats."""
        if self._touched is None:
            return False
        last = self._touched
        if self._heartbeat is not None:
            last = min(last, self._heartbeat.beaten_at)
        return time.monotonic() - last < MISSED * HEARTBEAT
