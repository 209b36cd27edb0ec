"""Awaiting: ends that other processes write are found by asking the journal; a hint says when to ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging

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
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._news.ended()
            await asyncio.sleep(LEAST)
            try:
                await self._ask()
            except StoreAway as away:
                log.info("ends of others are not heard of: %s", away.message)

    async def _ask(self) -> None:
        awaited = self._completions.awaited
        if awaited:
            for execution, end in (await self._journal.ends(awaited)).items():
                self._completions.announce(execution, end)
