"""The pulse: notices that something was written, and tells whoever follows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from rune.errors import RuneError
from rune.runtime.reader import Reader

log = logging.getLogger("rune.master.live")

LEAST_PAUSE = 0.02  # s between two looks
PER_FOLLOWER = 0.0002  # s: what is sent to many is sent less often, in larger pieces
MOST_PAUSE = 0.25  # s, however many follow and however much there is to look at
AWAY_PAUSE = 1.0  # s after a look that failed
SHARE = 4  # a look is followed by a pause this many times as long

Look = Callable[[], Awaitable[None]]


class Pulse:
    """One look at the store for everybody. Nobody follows: it rests."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._looks: dict[object, Look] = {}
        self._closings: dict[object, Callable[[], None]] = {}
        self._needed = asyncio.Event()
        self._change: int | None = None
        self.closed = False
        self.crowd = 0  # who follows, all together

    def join(self, who: object, look: Look, closing: Callable[[], None]) -> None:
        """Have a look taken whenever something was written."""
        self._looks[who] = look
        self._closings[who] = closing
        self._needed.set()

    def leave(self, who: object) -> None:
        """No more looks."""
        self._looks.pop(who, None)
        self._closings.pop(who, None)
        if not self._looks:
            self._needed.clear()

    def hint(self) -> None:
        """Look again, whether or not something was written."""
        self._change = None

    def close(self) -> None:
        """Everybody who follows is told to go."""
        self.closed = True
        for closing in list(self._closings.values()):
            closing()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._needed.wait()
            began = time.thread_time()  # of this thread: a busy machine is no reason to look less often
            try:
                await self._beat()
            except Exception as error:
                # Whatever it was, the next look may succeed, and nobody else would take it.
                log.warning("cannot look: %s", error)
                await asyncio.sleep(AWAY_PAUSE)
            wanted = max(self.crowd * PER_FOLLOWER, SHARE * (time.thread_time() - began))
            await asyncio.sleep(min(MOST_PAUSE, max(LEAST_PAUSE, wanted)))

    async def _beat(self) -> None:
        change = await self._reader.change()
        if change == self._change:
            return
        for who, look in list(self._looks.items()):
            try:
                await look()
            except RuneError:
                raise
            except Exception:
                # One that cannot be followed, for example because it was removed, must not stop the others.
                log.exception("an execution cannot be followed any more")
                self._looks.pop(who, None)
        self._change = change
