"""Finds deployed workflows of which an execution is missing: none has completed for as long as its settings expect.

Nothing is written when an execution completes. When a period is over, the last completion is looked up, and the period
begins again there. Any number of processes may look: the one that replaces the stored expectation also writes the row
of the handler, in the same transaction.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from rune.ports.clock import iso
from rune.ports.journal import Missing, StoreUnavailableError
from rune.ports.workflows import Expectation, moved_on
from rune.runtime import failpoint
from rune.runtime.backend import Backend

log = logging.getLogger("rune.expectations")

BATCH = 100
POLL_S = 1.0
CODE = "MISSING"


class ExpectationWatch:
    """Records that executions are missing, once for each period."""

    def __init__(self, backend: Backend) -> None:
        self._store = backend.expectations
        self._clock = backend.clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            full = False
            try:
                full = await self.turn() == BATCH
            except StoreUnavailableError as error:
                log.warning("store unavailable: %s", error.message)
            except Exception:
                log.exception("looking for missing executions failed")
            if not full:
                await asyncio.sleep(POLL_S)

    async def turn(self) -> int:
        """Process one batch of periods that are over, and return its size."""
        now = self._clock.now()
        due = await self._store.due(now, BATCH)
        for expectation in due:
            await self._process(expectation, now)
        return len(due)

    async def _process(self, expectation: Expectation, now: int) -> None:
        last = await self._store.last_completed(expectation.workflow, expectation.since)
        if last is not None and last + expectation.every > now:
            await self._store.put(moved_on(expectation, last))
            return
        # Periods that passed while nobody looked are one.
        since = expectation.since if last is None else last
        periods = (now - since) // expectation.every
        # crash here: nothing is stored, and another process finds the same
        failpoint.hit("missing")
        stored = await self._store.put(
            replace(moved_on(expectation, since + periods * expectation.every)), _missing(expectation, since)
        )
        if stored is not None:
            # crash here: the row of the handler is stored with the next period
            failpoint.hit("missed")
            log.warning("%s: no execution has completed since %s", expectation.workflow, iso(since))


def _missing(expectation: Expectation, since: int) -> Missing:
    due = since + expectation.every
    return Missing(
        name=f"{expectation.workflow}@{due}",
        workflow=expectation.workflow,
        version=expectation.version,
        hash=expectation.hash,
        scopes=expectation.scopes,
        at=due,
        code=CODE,
        message=f"no execution of `{expectation.workflow}` has completed since {iso(since)}; one is expected every"
        f" {expectation.every / 1000:g} s",
    )
