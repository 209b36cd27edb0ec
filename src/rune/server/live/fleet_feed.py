"""The fleet: which executions began, changed or ended, as it happens. What was missed is in the list of executions."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable

import msgspec

from rune.ports.queries import Summary
from rune.ports.retention import ENDED
from rune.runtime.queries.reader import ExecutionReader
from rune.server.live.feed import ChangeNotifier, Subscription
from rune.server.schemas import execution_view

NEWEST = 100
MAX_OPEN = 500
MIN_PAUSE_S = 0.25  # s between two looks
RING = 1_000
MISSED = b"event: missed\ndata: {}\n\n"
"""Something may have happened that is not told: read the list."""

_ENCODER = msgspec.json.Encoder()
Sees = Callable[[str], bool]


class FleetFeed:
    """Follows the newest executions and those of them that are not over yet. One for all who look."""

    def __init__(self, reader: ExecutionReader, pulse: ChangeNotifier) -> None:
        self._reader = reader
        self._pulse = pulse
        self._known: OrderedDict[str, str] = OrderedDict()  # status by id
        self._ring: list[tuple[str, bytes]] = []  # workflow and what is told of it
        self._followers: set[FleetSubscription] = set()
        self._looked = 0.0
        self._fresh = True  # nothing was seen yet: what is there is no news
        self._due: asyncio.TimerHandle | None = None
        self.last = 0

    def enter(self, follower: FleetSubscription) -> None:
        """One more who looks."""
        if not self._followers:
            self._pulse.join(self, self.poll, self.wake)
        self._followers.add(follower)

    def leave(self, follower: FleetSubscription) -> None:
        """One less."""
        self._followers.discard(follower)
        if not self._followers:
            self._pulse.leave(self)
            self._known.clear()
            self._ring.clear()
            self._looked = 0.0
            self._fresh = True

    async def poll(self) -> None:
        """See what changed; not more often than a few times a second, and once more when it has become quiet."""
        wait = self._looked + MIN_PAUSE_S - time.monotonic()
        if wait > 0:
            if self._due is None:
                self._due = asyncio.get_running_loop().call_later(wait, self._again)
            return
        fresh = self._fresh
        changed = await self._changed()
        self._looked = time.monotonic()
        if fresh:
            self._tell("", MISSED)
        for each in changed:
            data = b"event: execution\ndata: %b\n\n" % _ENCODER.encode(execution_view(each))
            self._tell(each.workflow, data)
        self.wake()

    def _again(self) -> None:
        self._due = None
        if self._followers:
            self._pulse.hint()

    async def _changed(self) -> list[Summary]:
        fresh, self._fresh = self._fresh, False
        newest = await self._reader.executions(limit=NEWEST)
        seen = {each.id for each in newest}
        found = [each for each in reversed(newest) if self._known.get(each.id) != each.status]
        for id in [id for id, status in self._known.items() if status not in ENDED and id not in seen]:
            other = await self._reader.execution(id)
            if other is None:
                del self._known[id]
            elif other.status != self._known[id]:
                found.append(other)
        for each in found:
            self._known[each.id] = each.status
        self._drop(seen)
        return [] if fresh else found

    def _drop(self, seen: set[str]) -> None:
        """Forget what is over and no longer among the newest, and the oldest where too many are open."""
        for id in [id for id, status in self._known.items() if status in ENDED and id not in seen]:
            del self._known[id]
        while len(self._known) > MAX_OPEN + NEWEST:
            self._known.popitem(last=False)

    def _tell(self, workflow: str, data: bytes) -> None:
        self.last += 1
        self._ring.append((workflow, data))
        del self._ring[:-RING]

    def wake(self) -> None:
        """There may be news."""
        for each in self._followers:
            each.news.set()

    def behind(self, place: int, sees: Sees) -> tuple[bytes, int]:
        """What happened behind a place to the workflows that are seen; who was too slow for the ring is told to read
        the list."""
        missed = self.last - place
        if missed > len(self._ring):
            return MISSED, self.last
        told = self._ring[len(self._ring) - missed :]
        return b"".join(data for workflow, data in told if not workflow or sees(workflow)), self.last

    @property
    def following(self) -> bool:
        """Whether a first look was taken: what changes from then on is told."""
        return self._looked > 0 and bool(self._followers)

    @property
    def closed(self) -> bool:
        """Whether everybody is to go."""
        return self._pulse.closed


class FleetSubscription(Subscription):
    """Somebody who looks at the fleet."""

    def __init__(self, fleet: FleetFeed, sees: Sees = lambda _: True) -> None:
        super().__init__()
        self._fleet = fleet
        self._sees = sees
        self._place = fleet.last

    async def pieces(self) -> AsyncGenerator[bytes | None, None]:
        try:
            while not self.gone and not self._fleet.closed:
                self.news.clear()
                data, self._place = self._fleet.behind(self._place, self._sees)
                if data:
                    yield data
                elif self._reminded:
                    self._reminded = False
                    yield None
                else:
                    await self.news.wait()
        finally:
            self.gone = True
