"""The relay: does what a process that died after its row left undone. Several may be at it."""

from __future__ import annotations

import asyncio
import logging

from rune.ports.journal import Journal, StoreUnavailableError
from rune.ports.outbox import Outbox, OutboxRow
from rune.runtime import failpoint
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher
from rune.runtime.messaging.completion_publisher import CompletionPublisher

log = logging.getLogger("rune.relay")

BATCH = 100
PAUSE_S = 1.0  # s between two looks at an empty outbox


class OutboxRelay:
    """Opens what was accepted and closes what has ended. Twice is once."""

    def __init__(
        self,
        outbox: Outbox,
        journal: Journal,
        launcher: Launcher,
        endings: Finisher,
        completing: CompletionPublisher | None = None,
    ) -> None:
        self._completing = completing
        self._outbox = outbox
        self._journal = journal
        self._launcher = launcher
        self._endings = endings

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                busy = await self.turn()
            except StoreUnavailableError as away:
                log.warning("the store is away: %s", away.message)
                busy = False
            except Exception:
                log.exception("the relay stumbled")
                busy = False
            if not busy:
                await asyncio.sleep(PAUSE_S)

    async def turn(self) -> bool:
        """One batch; whether there may be more."""
        notices = await self._outbox.take(BATCH)
        done = await asyncio.gather(*(self._guarded(each) for each in notices))
        settled = [each.number for each, served in zip(notices, done, strict=True) if served]
        if settled:
            failpoint.hit("relayed")  # crash here: the rows are taken again, and what was done is found done
            await self._outbox.done(settled)
        return len(notices) == BATCH

    async def _guarded(self, notice: OutboxRow) -> bool:
        """One that cannot be served is looked at again later and holds up nobody."""
        try:
            await self._serve(notice)
        except StoreUnavailableError:
            return False
        except Exception as error:
            log.warning(
                "%s %s is left for later: %s: %s", notice.kind, notice.execution, type(error).__name__, error
            )
            return False
        return True

    async def _serve(self, notice: OutboxRow) -> None:
        end = await self._journal.end(notice.execution)
        if end is not None:
            await self._endings.release(notice.execution, end)
            if self._completing is not None and notice.kind == "end":
                await self._completing.relayed(self._outbox, notice, end)
            return
        accepted = await self._journal.accepted(notice.execution)
        if accepted is not None:
            await self._launcher.activate(accepted)
