"""Live feeds of single executions, read from the journal once for all subscribers.

The newest events of an execution are kept encoded in a ring. A subscriber has a position in it and reads forward at its
own pace; a subscriber that has fallen out of the ring, or starts before it, reads the journal. So there are no queues
per subscriber, and a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import msgspec

from rune.api.live import Rollup
from rune.core.execution.fact import ExecutionEnded
from rune.errors import RuneError
from rune.off_loop import off_loop
from rune.ports.journal import StoredFact
from rune.ports.processes import LoggedLine, RunningNode
from rune.ports.queries import Event
from rune.runtime.engine import Engine
from rune.runtime.queries.history import History
from rune.runtime.queries.reader import ExecutionReader
from rune.server.live.now import NowEvents
from rune.server.responses import ApiError
from rune.server.schemas.executions import event_view
from rune.server.views.graphs import rollups_of
from rune.server.views.overviews import OverviewCache

log = logging.getLogger("rune.server.live")

MAX_RING_EVENTS = 4_096
MARK_INTERVAL = 512  # events between two remembered positions in the journal
BATCH_SIZE = 512  # facts per turn of the event loop
MAX_CHUNK_EVENTS = 512  # events that are sent in one piece
MAX_SEARCHED_EVENTS = 20_000  # that one request with a filter looks at
MAX_MERGED_BYTES = 4 * 1024 * 1024  # of cached chunks
ROLLUP_INTERVAL_S = 0.5
MIN_PAUSE_S = 0.02  # between two polls
MAX_PAUSE_S = 0.25
PAUSE_PER_SUBSCRIBER_S = 0.0002  # many subscribers get fewer, larger chunks
POLL_PAUSE_FACTOR = 4  # a poll is followed by a pause this many times as long
STORE_RETRY_DELAY_S = 1.0
MAX_SUBSCRIBERS = 5_000
MAX_BACKLOG_READS = 1  # at the same time: more would only delay everything else

_ENCODER = msgspec.json.Encoder()
Poll = Callable[[], Awaitable[None]]


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An encoded event. `inside` tells whether it occurred in an item of a split."""

    number: int
    inside: bool
    data: bytes


def encode_event(event: Event) -> EncodedEvent:
    return EncodedEvent(event.number, bool(event.lineage), _ENCODER.encode(event_view(event)))


def sse(each: EncodedEvent) -> bytes:
    """Format an event as a server-sent event."""
    return b"id: %d\ndata: %b\n\n" % (each.number, each.data)


def _chunk_size(after: int) -> int:
    """Return how many events follow until the next position in the journal that is remembered."""
    return min(MAX_CHUNK_EVENTS, MARK_INTERVAL - after % MARK_INTERVAL)


class ExecutionFeed:
    """The events of one execution so far."""

    def __init__(self, history: History, reader: ExecutionReader, overviews: OverviewCache) -> None:
        self.execution = history.accepted.id
        self.last = 0
        self.ended = False
        self.waiting: set[asyncio.Event] = set()
        self.now = NowEvents(history)
        self.followers = 0  # subscribers that receive `now` events
        self._history = history
        self._reader = reader
        self._overviews = overviews
        self._ring: deque[EncodedEvent] = deque(maxlen=MAX_RING_EVENTS)
        self._marks = [0]  # number of the journal entry after which each interval of events begins
        self._seen = 0
        self._chunks: dict[int, tuple[bytes, int]] = {}  # by the event number they follow, oldest first
        self._chunk_bytes = 0
        self._rollup: tuple[int, float, bytes] = (-1, 0.0, b"")
        self._reading = asyncio.Lock()
        self._counting = asyncio.Lock()

    async def poll(self) -> None:
        """Read new facts from the journal and wake the subscribers."""
        async with self._reading:
            if not self.last:
                self._append(self._history.beginning)
                self.wake()
            async for stored in self._reader.fact_batches(self.execution, self._seen, size=BATCH_SIZE):
                await self._history.load_claims(stored)
                for each in stored:
                    self._add(each)
                self.wake()

    def _add(self, stored: StoredFact) -> None:
        self._seen = stored.number
        self.now.add_fact(stored.fact)
        self._append(self._history.follow(stored))
        if self.last % MARK_INTERVAL == 0:
            self._marks.append(stored.number)
        if isinstance(stored.fact, ExecutionEnded):
            self.ended = True

    def _append(self, event: Event) -> None:
        self._ring.append(encode_event(event))
        self.last = event.number

    def show_running(self, running: Sequence[RunningNode], lines: Sequence[LoggedLine]) -> None:
        """Send a `now` event to the subscribers."""
        if not self.ended:
            self.now.add(running, lines)
            self.wake()

    def wake(self) -> None:
        """Wake the subscribers: there are new events, or the server is shutting down."""
        for each in self.waiting:
            each.set()

    def holds(self, after: int) -> bool:
        """Whether the ring holds all events after a number."""
        return after >= self.last or (bool(self._ring) and self._ring[0].number <= after + 1)

    def newest(self, after: int) -> list[EncodedEvent]:
        """Return the events after a number that the ring holds, at most one chunk."""
        if after >= self.last:
            return []
        start = after + 1 - self._ring[0].number
        return [self._ring[at] for at in range(start, min(start + _chunk_size(after), len(self._ring)))]

    def chunk(self, after: int) -> tuple[bytes, int] | None:
        """Return the next chunk of a stream and the number of its last event; None if the ring no longer holds it.
        Chunks are cached, so that lagging subscribers share the same boundaries and each event is formatted once."""
        chunk = self._chunks.get(after)
        if chunk is None and self.holds(after):
            chunk = self._merge(after, self.newest(after))
        return chunk

    async def load_chunk(self, after: int) -> tuple[bytes, int]:
        """Read the next chunk from the journal."""
        return self._merge(after, await self.backlog(after, _chunk_size(after)))

    def _merge(self, after: int, found: list[EncodedEvent]) -> tuple[bytes, int]:
        if not found:
            return b"", after
        chunk = b"".join(map(sse, found)), found[-1].number
        # Subscribers read from the beginning to the end: the chunk that was added last is needed again last.
        while self._chunks and self._chunk_bytes + len(chunk[0]) > MAX_MERGED_BYTES:
            _, (dropped, _) = self._chunks.popitem()
            self._chunk_bytes -= len(dropped)
        self._chunks[after] = chunk
        self._chunk_bytes += len(chunk[0])
        return chunk

    async def backlog(self, after: int, limit: int) -> list[EncodedEvent]:
        """Read the first `limit` events after a number from the journal."""
        mark = min(after // MARK_INTERVAL, len(self._marks) - 1)
        number = max(mark * MARK_INTERVAL, 1)  # of the event before the first fact that is read
        stored = await self._reader.facts(self.execution, self._marks[mark], after - number + limit + 1)
        beginning = [encode_event(self._history.beginning)] if after < 1 else []
        behind = [each for each in enumerate(stored, start=number + 1) if each[0] > after]
        return (beginning + await off_loop(partial(self._encoded, behind[:limit])))[:limit]

    def _encoded(self, numbered: list[tuple[int, StoredFact]]) -> list[EncodedEvent]:
        return [encode_event(self._history.event(number, each)) for number, each in numbered]

    async def backwards(
        self, before: int, after: int, limit: int, wanted: Callable[[Event], bool]
    ) -> tuple[list[EncodedEvent], int | None]:
        """Read up to `limit` wanted events between two numbers, newest first. Return them and the number before which
        to continue; None if there are no more to look at."""
        number = min(before, self.last + 1)
        lowest = max(after + 1, number - MAX_SEARCHED_EVENTS)
        found: list[EncodedEvent] = []
        while number > lowest and len(found) < limit:
            events = await self._events_before(number)
            if not events:
                break  # the execution was removed meanwhile
            for event in reversed(events):
                if event.number < lowest or len(found) == limit:
                    break
                number = event.number
                if wanted(event):
                    found.append(encode_event(event))
        return found, number if number > after + 1 else None

    async def _events_before(self, number: int) -> list[Event]:
        """Read the events before a number, back to the last remembered position in the journal."""
        mark = max(number - 2, 0) // MARK_INTERVAL
        first = max(mark * MARK_INTERVAL, 1)  # the event before the first fact that is read
        stored = []
        if number - 1 > first:
            stored = await self._reader.facts(self.execution, self._marks[mark], number - 1 - first)
        found = [self._history.event(at, each) for at, each in enumerate(stored, start=first + 1)]
        return found if mark else [self._history.beginning, *found]

    async def rollup(self) -> bytes:
        """Return the counts of the splits as one event of a stream, made at most twice per second for all subscribers.
        They are those of the overview, which is read only while somebody follows them."""
        async with self._counting:
            number, made, data = self._rollup
            moment = time.monotonic()
            if number != self.last and (moment - made >= ROLLUP_INTERVAL_S or self.ended):
                last = self.last
                overview = await self._overviews.of(self.execution, followed=True)
                splits = rollups_of(overview, self.now.shown, time.time_ns() // 1_000_000)
                body = _ENCODER.encode(Rollup(number=overview.number, splits=splits))
                data = b"event: rollup\ndata: %b\n\n" % body if splits else b""
                self._rollup = (last, moment, data)
            return data


class ChangeNotifier:
    """Polls the store for changes on behalf of all feeds; idle while there are none."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader
        self._polls: dict[object, Poll] = {}
        self._closings: dict[object, Callable[[], None]] = {}
        self._joined: set[object] = set()  # not polled yet
        self._needed = asyncio.Event()
        self._change: int | None = None
        self._woken = asyncio.Event()
        self.closed = False
        self.subscriber_count = 0  # of all feeds together

    def join(self, feed: object, poll: Poll, on_close: Callable[[], None]) -> None:
        """Call `poll` soon, then whenever the store has changed; `on_close` when the server shuts down."""
        self._polls[feed] = poll
        self._closings[feed] = on_close
        self._joined.add(feed)
        self._needed.set()

    def leave(self, feed: object) -> None:
        self._polls.pop(feed, None)
        self._closings.pop(feed, None)
        self._joined.discard(feed)
        if not self._polls:
            self._needed.clear()

    def hint(self) -> None:
        """Poll all feeds next time, also without a change of the store."""
        self._change = None

    def wake(self) -> None:
        """Poll soon: another process reports that an execution has changed."""
        self._woken.set()

    def close(self) -> None:
        """End all subscriptions."""
        self.closed = True
        for on_close in list(self._closings.values()):
            on_close()

    async def run(self) -> None:
        while True:
            await self._needed.wait()
            # CPU time of this thread, so that a busy machine does not lead to fewer polls.
            began = time.thread_time()
            try:
                await self._poll_feeds()
            except Exception as error:
                # Any exception: the next poll may succeed, and no other task would run it.
                log.warning("polling for changes failed: %s", error)
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            wanted = max(
                self.subscriber_count * PAUSE_PER_SUBSCRIBER_S,
                POLL_PAUSE_FACTOR * (time.thread_time() - began),
            )
            await self._pause(min(MAX_PAUSE_S, max(MIN_PAUSE_S, wanted)))

    async def _pause(self, seconds: float) -> None:
        """Pause between two polls; a wake-up ends the pause early."""
        self._woken.clear()
        await asyncio.sleep(MIN_PAUSE_S)
        if seconds > MIN_PAUSE_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - MIN_PAUSE_S):
                    await self._woken.wait()

    async def _poll_feeds(self) -> None:
        change = await self._reader.version()
        # A feed that joined is polled without a change as well: its first poll finds what the later ones compare with.
        due = self._joined if change == self._change else self._polls
        for feed, poll in [(each, self._polls[each]) for each in due if each in self._polls]:
            self._joined.discard(feed)
            try:
                await poll()
            except RuneError:
                self._joined.add(feed)
                raise
            except Exception:
                # One feed that fails, for example because its execution was removed, must not stop the others.
                log.exception("the feed of an execution failed and is no longer polled")
                self._polls.pop(feed, None)
        self._change = change


class StreamLimits(msgspec.Struct, frozen=True):
    """How many event streams a server has, and how many of them one principal may have."""

    total: int = MAX_SUBSCRIBERS
    per_key: int = 200


DEFAULT_STREAM_LIMITS = StreamLimits()


class StreamSlots:
    """Counts open event streams."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._by_principal: Counter[str] = Counter()
        self._open = 0

    @contextmanager
    def held(self, principal: str) -> Iterator[None]:
        """Count a stream during the block. Raise if the server or the principal has too many."""
        if self._open >= self._limits.total:
            raise ApiError(
                f"the server already has {self._limits.total:,} event streams", code="TOO_MANY_WATCH"
            )
        if self._by_principal[principal] >= self._limits.per_key:
            raise ApiError(
                f"this API key already has {self._limits.per_key:,} event streams", code="TOO_MANY_WATCH"
            )
        self._open += 1
        self._by_principal[principal] += 1
        try:
            yield
        finally:
            self._open -= 1
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


class PendingEnd:
    """The end of an execution that a caller waits for."""

    def __init__(self, future: asyncio.Future[ExecutionEnded], notifier: ChangeNotifier) -> None:
        self._future = future
        self._notifier = notifier

    async def wait(self, seconds: float) -> ExecutionEnded | None:
        """Wait until the execution has ended, the time is over, or the server shuts down. Return the end, or None."""
        if not self._notifier.closed:
            await asyncio.wait({self._future}, timeout=seconds)
        ended = self._future.done() and not self._future.cancelled()
        return self._future.result() if ended else None


class FeedRegistry:
    """Feeds by execution, opened for the first subscriber and closed after the last."""

    def __init__(
        self,
        engine: Engine,
        reader: ExecutionReader,
        overviews: OverviewCache,
        notifier: ChangeNotifier,
        slots: StreamSlots,
    ) -> None:
        self._backend = engine.backend
        self._live = engine.live
        self._waiters = engine.completion_waiters
        self._awaited: set[asyncio.Future[ExecutionEnded]] = set()
        self.slots = slots
        self._reader = reader
        self._overviews = overviews
        self._notifier = notifier
        self._open: dict[str, tuple[ExecutionFeed, int]] = {}
        self._subscribers = 0
        self.backlogs = asyncio.Semaphore(MAX_BACKLOG_READS)

    @property
    def executions(self) -> Collection[str]:
        """The executions that clients follow, as a view."""
        return self._open.keys()

    @property
    def closed(self) -> bool:
        """Whether all subscriptions are to end."""
        return self._notifier.closed

    @asynccontextmanager
    async def subscribe(self, execution: str) -> AsyncIterator[ExecutionFeed]:
        """Provide the feed of an execution during the block."""
        self._add_subscriber()
        try:
            feed = await self._acquire(execution)
            try:
                await feed.poll()
                yield feed
            finally:
                self._release(feed)
        finally:
            self._remove_subscriber()

    def _add_subscriber(self) -> None:
        if self._subscribers >= MAX_SUBSCRIBERS:
            raise ApiError(f"the server already has {MAX_SUBSCRIBERS:,} subscribers", code="TOO_MANY_WATCH")
        self._subscribers += 1
        self._notifier.subscriber_count = self._subscribers

    def _remove_subscriber(self) -> None:
        self._subscribers -= 1
        self._notifier.subscriber_count = self._subscribers

    async def _acquire(self, execution: str) -> ExecutionFeed:
        if execution not in self._open:
            accepted = await self._reader.accepted(execution)
            plan = await self._reader.plan(execution)
            history = History(accepted, plan, self._backend.journal, self._backend.blob, [])
            if execution not in self._open:
                opened = ExecutionFeed(history, self._reader, self._overviews)
                self._open[execution] = (opened, 0)
                self._notifier.join(opened, opened.poll, opened.wake)
        feed, count = self._open[execution]
        self._open[execution] = (feed, count + 1)
        return feed

    @contextmanager
    def following_now(self, feed: ExecutionFeed) -> Iterator[None]:
        """Add `now` events to a feed during the block."""
        feed.followers += 1
        if feed.followers == 1:
            self._live.follow(feed.execution, feed.show_running)
        try:
            yield
        finally:
            feed.followers -= 1
            if not feed.followers:
                self._live.unfollow(feed.execution)

    def _release(self, feed: ExecutionFeed) -> None:
        _, count = self._open[feed.execution]
        if count > 1:
            self._open[feed.execution] = (feed, count - 1)
        else:
            del self._open[feed.execution]
            self._notifier.leave(feed)
            self._overviews.release(feed.execution)

    @contextmanager
    def awaiting(self, execution: str) -> Iterator[PendingEnd]:
        """Listen for the end of an execution during the block, from its beginning on: an end that is recorded after the
        caller has looked for it is not missed."""
        self._add_subscriber()
        future = self._waiters.wait_for(execution)
        self._awaited.add(future)
        try:
            yield PendingEnd(future, self._notifier)
        finally:
            self._awaited.discard(future)
            self._waiters.forget(execution, future)
            self._remove_subscriber()

    def close(self) -> None:
        """Stop waiting for ends."""
        for each in list(self._awaited):
            each.cancel()


class Subscription(ABC):
    """A subscriber, woken for new events, for heartbeats, and when its client disconnects."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.disconnected = False
        self._heartbeat_due = False

    def leave(self, *_: object) -> None:
        """End the subscription because the client has disconnected."""
        self.disconnected = True
        self.changed.set()

    def request_heartbeat(self) -> None:
        """Send a heartbeat next, unless there are events."""
        self._heartbeat_due = True
        self.changed.set()

    @abstractmethod
    def pieces(self) -> AsyncGenerator[list[EncodedEvent] | bytes | None, None]:
        """Yield what to send: events, bytes of a stream, or None for a heartbeat."""
