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
    """Touches the stores with every heartbeat."""

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._state = engine.backend.state
        self._reader = reader
        self._touched: float | None = None
        self.reason = "only just starting"

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
                await self._reader.executions(limit=1)
        except Exception as error:
            # Whatever it was: a probe that dies would leave the last answer standing.
            self.reason = f"a store does not answer: {str(error) or type(error).__name__}"
            log.warning("a store does not answer: %s", error)
            return
        self._touched = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the stores answered within two heartbeats."""
        return self._touched is not None and time.monotonic() - self._touched < MISSED * HEARTBEAT
