"""A watch: one execution that somebody follows, read once for all who do.

The newest events are kept, encoded, in a ring. Who follows has a place in it and takes what lies behind that place
when it can; who has fallen out of the ring, or comes late, reads the journal. So nobody has a queue of their own that
could grow, and nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

import msgspec

from rune.core.fact import End
from rune.master.live.rollup import Rollups
from rune.master.views import event_view
from rune.ports.journal import Stored
from rune.ports.store import Event
from rune.runtime.history import History
from rune.runtime.reader import Reader

RING = 4_096
STRIDE = 512
AT_ONCE = 512  # facts between two turns of the loop
CHUNK = 500  # events that are sent in one piece
MOST_JOINED = 4 * 1024 * 1024  # bytes of pieces that are kept
ROLLUP_PAUSE = 0.5  # s
_ENCODER = msgspec.json.Encoder()


class Tale(History):
    """A history that is followed, and can tell any one event again."""

    def event(self, number: int, stored: Stored) -> Event:
        """The event of a fact whose number is known."""
        return self._event(number, stored)


class Told(msgspec.Struct, frozen=True, gc=False):
    """One event, ready to be sent. `inside`: it happened in an item of a split."""

    number: int
    inside: bool
    data: bytes


def told(event: Event) -> Told:
    """An event, encoded."""
    return Told(event.number, bool(event.lineage), _ENCODER.encode(event_view(event)))


def sse(each: Told) -> bytes:
    """An event as a stream of events has it."""
    return b"id: %d\ndata: %b\n\n" % (each.number, each.data)


class Watch:
    """The events of one execution, as far as they have come."""

    def __init__(self, tale: Tale, reader: Reader) -> None:
        self.execution = tale.accepted.id
        self.last = 0
        self.ended = False
        self.waiting: set[asyncio.Event] = set()
        self._tale = tale
        self._reader = reader
        self._rollups = Rollups(tale.plan)
        self._ring: deque[Told] = deque(maxlen=RING)
        self._marks = [0]  # after which number of the journal the events behind each stride begin
        self._seen = 0
        self._pieces: dict[int, tuple[bytes, int]] = {}  # by the place they begin behind, oldest first
        self._joined = 0  # bytes of them
        self._rollup: tuple[int, float, bytes] = (-1, 0.0, b"")
        self._reading = asyncio.Lock()

    async def look(self) -> None:
        """Read what is new, and wake who waits for it."""
        async with self._reading:
            if not self.last:
                self._keep(self._tale.beginning)
                self.wake()
            async for stored in self._reader.pieces(self.execution, self._seen, size=AT_ONCE):
                for each in stored:
                    self._take(each)
                self.wake()

    def _take(self, stored: Stored) -> None:
        self._seen = stored.number
        self._rollups.count(stored.fact)
        self._keep(self._tale.follow(stored))
        if self.last % STRIDE == 0:
            self._marks.append(stored.number)
        if isinstance(stored.fact, End):
            self.ended = True

    def _keep(self, event: Event) -> None:
        self._ring.append(told(event))
        self.last = event.number

    def wake(self) -> None:
        """There is news, or no more to wait for."""
        for each in self.waiting:
            each.set()

    def holds(self, after: int) -> bool:
        """Whether everything behind a number is in the ring."""
        return after >= self.last or (bool(self._ring) and self._ring[0].number <= after + 1)

    def newest(self, after: int) -> list[Told]:
        """What lies behind a number that the ring holds, as much as is sent in one piece."""
        if after >= self.last:
            return []
        start = after + 1 - self._ring[0].number
        return [self._ring[at] for at in range(start, min(start + CHUNK, len(self._ring)))]

    def joined(self, after: int) -> tuple[bytes, int] | None:
        """The same as one piece of a stream of events, and the number it ends with; None if the ring has it no more.
        Who comes to the same place is sent the same bytes, now or later: so those who lag go by the same places, and
        an event is put into bytes once."""
        known = self._pieces.get(after)
        if known is None and self.holds(after):
            known = self._join(after, self.newest(after))
        return known

    async def rejoined(self, after: int) -> tuple[bytes, int]:
        """A piece from the journal."""
        return self._join(after, await self.backlog(after, CHUNK))

    def _join(self, after: int, found: list[Told]) -> tuple[bytes, int]:
        if not found:
            return b"", after
        piece = b"".join(map(sse, found)), found[-1].number
        self._pieces[after] = piece
        self._joined += len(piece[0])
        while self._joined > MOST_JOINED and len(self._pieces) > 1:
            dropped, _ = self._pieces.pop(next(iter(self._pieces)))
            self._joined -= len(dropped)
        return piece

    async def backlog(self, after: int, limit: int) -> list[Told]:
        """The first so many events behind a number, from the journal."""
        stride = min(after // STRIDE, len(self._marks) - 1)
        number = max(stride * STRIDE, 1)  # of the event before the first fact that is read
        stored = await self._reader.facts(self.execution, self._marks[stride], after - number + limit + 1)
        found = [told(self._tale.beginning)] if after < 1 else []
        for at, each in enumerate(stored, start=number + 1):
            if at > after:
                found.append(told(self._tale.event(at, each)))
        return found[:limit]

    def rollup(self) -> bytes:
        """The roll-ups as one event of a stream; made anew at most twice a second."""
        number, made, data = self._rollup
        now = time.monotonic()
        if number != self.last and (now - made >= ROLLUP_PAUSE or self.ended):
            splits = self._rollups.read()
            body = _ENCODER.encode({"number": self.last, "splits": splits})
            data = b"event: rollup\ndata: %b\n\n" % body if splits else b""
            self._rollup = (self.last, now, data)
        return data

    def rollups(self) -> Rollups:
        """The counts behind the roll-ups."""
        return self._rollups
