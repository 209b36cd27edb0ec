"""The outbox relay: serves outbox rows that the process which recorded them did not mark as done."""

from __future__ import annotations

import asyncio
import logging

from rune.ports.journal import Journal, Outbox, OutboxRow, StoreUnavailableError
from rune.runtime import failpoint
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher
from rune.runtime.messaging.completion_publisher import CompletionPublisher

log = logging.getLogger("rune.relay")

BATCH = 100
POLL_S = 1.0


class OutboxRelay:
    """Activates accepted executions and releases ended ones. Both are safe to repeat."""

    def __init__(
        self,
        outbox: Outbox,
        journal: Journal,
        launcher: Launcher,
        finisher: Finisher,
        publisher: CompletionPublisher | None = None,
    ) -> None:
        self._publisher = publisher
        self._outbox = outbox
        self._journal = journal
        self._launcher = launcher
        self._finisher = finisher

    async def run(self) -> None:
        """Serve rows until cancelled."""
        while True:
            try:
                full = await self.turn()
            except StoreUnavailableError as error:
                log.warning("store unavailable: %s", error.message)
                full = False
            except Exception:
                log.exception("serving the outbox failed")
                full = False
            if not full:
                await asyncio.sleep(POLL_S)

    async def turn(self) -> bool:
        """Serve one batch of rows. Return whether there may be more."""
        rows = await self._outbox.take(BATCH)
        results = await asyncio.gather(*(self._try_serve(row) for row in rows))
        numbers = [row.number for row, served in zip(rows, results, strict=True) if served]
        if numbers:
            # crash here: a relay takes the rows again and finds the work done
            failpoint.hit("relayed")
            await self._outbox.done(numbers)
        return len(rows) == BATCH

    async def _try_serve(self, row: OutboxRow) -> bool:
        """Serve a row. One that fails stays in the outbox for later and does not hold up the others."""
        try:
            await self._serve(row)
        except StoreUnavailableError:
            return False
        except Exception as error:
            kind = type(error).__name__
            log.warning("%s of %s is retried later: %s: %s", row.kind, row.execution, kind, error)
            return False
        return True

    async def _serve(self, row: OutboxRow) -> None:
        end = await self._journal.end(row.execution)
        if end is not None:
            await self._finisher.release(row.execution, end)
            if self._publisher is not None and row.kind == "end":
                await self._publisher.publish_from_outbox(self._outbox, row, end)
            return
        accepted = await self._journal.accepted(row.execution)
        if accepted is not None:
            await self._launcher.activate(accepted)
