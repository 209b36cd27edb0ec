"""Awaiting: ends that other processes write are found by asking the journal; a hint says when to ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Set

from rune.ports.journal import Journal, StoreAway
from rune.runtime.backend import News
from rune.runtime.completions import Completions

log = logging.getLogger("rune.awaiting")

PATIENCE = 1.0  # s: hints may be lost
LEAST = 0.002  # s between two questions: many ends at once are one


class Awaiting:
    """Tells those who wait here of ends that were written elsewhere."""

    def __init__(self, journal: Journal, completions: Completions, news: News) -> None:
        self._journal = journal
        self._completions = completions
        self._news = news

    async def run(self) -> None:
        """Until cancelled."""
        asked_all = 0.0
        while True:
            named: set[str] = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    named = await self._news.ended()
            await asyncio.sleep(LEAST)
            awaited = self._completions.awaited
            if time.monotonic() - asked_all >= PATIENCE:
                asked_all = time.monotonic()
            else:
                awaited = awaited & named
            try:
                await self._ask(awaited)
            except StoreAway as away:
                log.info("ends of others are not heard of: %s", away.message)

    async def _ask(self, executions: Set[str]) -> None:
        if executions:
            for execution, end in (await self._journal.ends(list(executions))).items():
                self._completions.announce(execution, end)
