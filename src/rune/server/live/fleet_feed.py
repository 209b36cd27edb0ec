"""Live feed of all executions: which ones started, changed their status or ended. It has no history."""

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
from rune.server.schemas.executions import execution_view

MAX_NEWEST = 100
MAX_OPEN = 500
MIN_POLL_INTERVAL_S = 0.25
MAX_RING_EVENTS = 1_000
MISSED = b"event: missed\ndata: {}\n\n"  # events may be missing; the client reads the list of executions

_ENCODER = msgspec.json.Encoder()
Sees = Callable[[str], bool]


class FleetFeed:
    """Tracks the newest executions until they end; shared by all subscribers."""

    def __init__(self, reader: ExecutionReader, notifier: ChangeNotifier) -> None:
        self._reader = reader
        self._notifier = notifier
        self._statuses: OrderedDict[str, str] = OrderedDict()  # by execution id
        self._ring: list[tuple[str, bytes]] = []  # workflow and encoded event
        self._subscribers: set[FleetSubscription] = set()
        self._polled_at = 0.0
        self._fresh = True  # the first poll finds only what exists already
        self._next_poll: asyncio.TimerHandle | None = None
        self.last = 0

    def enter(self, subscriber: FleetSubscription) -> None:
        if not self._subscribers:
            self._notifier.join(self, self.poll, self.wake)
        self._subscribers.add(subscriber)

    def leave(self, subscriber: FleetSubscription) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers:
            self._notifier.leave(self)
            self._statuses.clear()
            self._ring.clear()
            self._polled_at = 0.0
            self._fresh = True

    async def poll(self) -> None:
        """Publish changes, at most once per interval; a poll that comes too early is postponed."""
        wait = self._polled_at + MIN_POLL_INTERVAL_S - time.monotonic()
        if wait > 0:
            if self._next_poll is None:
                self._next_poll = asyncio.get_running_loop().call_later(wait, self._poll_postponed)
            return
        fresh = self._fresh
        changed = await self._find_changes()
        self._polled_at = time.monotonic()
        if fresh:
            self._publish("", MISSED)
        for each in changed:
            data = b"event: execution\ndata: %b\n\n" % _ENCODER.encode(execution_view(each))
            self._publish(each.workflow, data)
        self.wake()

    def _poll_postponed(self) -> None:
        self._next_poll = None
        if self._subscribers:
            self._notifier.hint()

    async def _find_changes(self) -> list[Summary]:
        fresh, self._fresh = self._fresh, False
        newest = await self._reader.executions(limit=MAX_NEWEST)
        seen = {each.id for each in newest}
        found = [each for each in reversed(newest) if self._statuses.get(each.id) != each.status]
        for id in [id for id, status in self._statuses.items() if status not in ENDED and id not in seen]:
            other = await self._reader.execution(id)
            if other is None:
                del self._statuses[id]
            elif other.status != self._statuses[id]:
                found.append(other)
        for each in found:
            self._statuses[each.id] = each.status
        self._drop(seen)
        return [] if fresh else found

    def _drop(self, seen: set[str]) -> None:
        """Stop tracking ended executions that are not among the newest, and the oldest if too many are open."""
        for id in [id for id, status in self._statuses.items() if status in ENDED and id not in seen]:
            del self._statuses[id]
        while len(self._statuses) > MAX_OPEN + MAX_NEWEST:
            self._statuses.popitem(last=False)

    def _publish(self, workflow: str, data: bytes) -> None:
        self.last += 1
        self._ring.append((workflow, data))
        del self._ring[:-MAX_RING_EVENTS]

    def wake(self) -> None:
        for each in self._subscribers:
            each.changed.set()

    def read_after(self, place: int, sees: Sees) -> tuple[bytes, int]:
        """Return the events of visible workflows after a place; `MISSED` if the ring no longer holds all of them."""
        missed = self.last - place
        if missed > len(self._ring):
            return MISSED, self.last
        events = self._ring[len(self._ring) - missed :]
        return b"".join(data for workflow, data in events if not workflow or sees(workflow)), self.last

    @property
    def following(self) -> bool:
        """Whether the first poll is done; changes from then on are published."""
        return self._polled_at > 0 and bool(self._subscribers)

    @property
    def closed(self) -> bool:
        """Whether all subscriptions are to end."""
        return self._notifier.closed


class FleetSubscription(Subscription):
    """A subscription to the events of all executions whose workflow is visible to the principal."""

    def __init__(self, fleet: FleetFeed, sees: Sees = lambda _: True) -> None:
        super().__init__()
        self._fleet = fleet
        self._sees = sees
        self._place = fleet.last

    async def pieces(self) -> AsyncGenerator[bytes | None, None]:
        try:
            while not self.disconnected and not self._fleet.closed:
                self.changed.clear()
                data, self._place = self._fleet.read_after(self._place, self._sees)
                if data:
                    yield data
                elif self._heartbeat_due:
                    self._heartbeat_due = False
                    yield None
                else:
                    await self.changed.wait()
        finally:
            self.disconnected = True
