"""Roll-ups: what became of the items of each split, in counts. Their size depends on the definition alone.

A watch: one execution that somebody follows, read once for all who do.

The newest events are kept, encoded, in a ring. Who follows has a place in it and takes what lies behind that place
when it can; who has fallen out of the ring, or comes late, reads the journal. So nobody has a queue of their own that
could grow, and nobody waits for anybody.

The pulse: notices that something was written, and tells whoever follows.

The watches: each execution that is followed, once, however many follow it.

Following: somebody who is told what happens, for as long as they stay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, NodeSuspended
from rune.core.execution.token import path_text
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.journal import StoredFact
from rune.ports.queries import Event
from rune.runtime.engine import Engine
from rune.runtime.queries.history import STATUS, History
from rune.runtime.queries.reader import ExecutionReader
from rune.server.responses import ApiError
from rune.server.schemas import event_view

MAX_FAILURES = 10
WINDOW = 10  # s over which the rate is taken


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """One node that failed in one item."""

    node_id: str
    lineage: str
    code: str
    message: str


class SplitRollup(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a split, in all lineages: how many nodes ended how, how fast, and the first that failed."""

    failures: list[Failed]
    split_node_id: str
    items: int
    nodes: dict[str, dict[str, int]]
    ended: int
    rate: float


class Rollups:
    """Counts that grow with the facts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._items: Counter[int] = Counter()
        self._ended: dict[int, Counter[tuple[int, str]]] = {}
        self._suspended: dict[int, Counter[int]] = {}
        self._failures: dict[int, list[Failed]] = {}
        self._recent: dict[int, deque[tuple[int, int]]] = {}

    def count(self, fact: Fact) -> None:
        """One more fact."""
        if isinstance(fact, NodeResult) and fact.items is not None:
            self._items[fact.node] += fact.items
        if not isinstance(fact, NodeResult | NodeSuspended) or not fact.path:
            return
        split = fact.path[-2]
        if isinstance(fact, NodeSuspended):
            self._suspended.setdefault(split, Counter())[fact.node] += 1
            return
        self._ended.setdefault(split, Counter())[(fact.node, STATUS.get(fact.status, fact.status))] += 1
        self._tick(split)
        if fact.failure is not None:
            self._note(split, fact)

    def _note(self, split: int, fact: NodeResult) -> None:
        known = self._failures.setdefault(split, [])
        if len(known) < MAX_FAILURES and fact.failure is not None:
            lineage = path_text(fact.path, self._plan.ids)
            known.append(
                Failed(
                    node_id=self._plan.ids[fact.node],
                    lineage=lineage,
                    code=fact.failure.code,
                    message=fact.failure.message,
                )
            )

    def _tick(self, split: int) -> None:
        second = int(time.monotonic())
        recent = self._recent.setdefault(split, deque(maxlen=WINDOW))
        if recent and recent[-1][0] == second:
            recent[-1] = (second, recent[-1][1] + 1)
        else:
            recent.append((second, 1))

    def read(self) -> list[SplitRollup]:
        """As it stands, in the order of the definition."""
        return [self._split(split) for split in sorted({*self._items, *self._ended})]

    def _split(self, split: int) -> SplitRollup:
        ids = self._plan.ids
        ended = self._ended.get(split, Counter())
        nodes: dict[str, dict[str, int]] = {}
        for (node, status), count in sorted(ended.items()):
            nodes.setdefault(ids[node], {})[status] = count
        for node, count in sorted(self._suspended.get(split, Counter()).items()):
            waiting = count - sum(many for (other, _), many in ended.items() if other == node)
            if waiting > 0:
                nodes.setdefault(ids[node], {})["waiting"] = waiting
        since = int(time.monotonic()) - WINDOW
        recent = sum(count for second, count in self._recent.get(split, ()) if second > since)
        return SplitRollup(
            failures=list(self._failures.get(split, ())),
            split_node_id=ids[split],
            items=self._items[split],
            nodes=nodes,
            ended=sum(ended.values()),
            rate=recent / WINDOW,
        )


RING = 4_096
STRIDE = 512
AT_ONCE = 512  # facts between two turns of the loop
CHUNK = 500  # events that are sent in one piece
MAX_MERGED_BYTES = 4 * 1024 * 1024  # bytes of pieces that are kept
ROLLUP_PAUSE = 0.5  # s
_ENCODER = msgspec.json.Encoder()


class Tale(History):
    """A history that is followed, and can tell any one event again."""

    def event(self, number: int, stored: StoredFact) -> Event:
        """The event of a fact whose number is known."""
        return self._event(number, stored)


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """One event, ready to be sent. `inside`: it happened in an item of a split."""

    number: int
    inside: bool
    data: bytes


def encode_event(event: Event) -> EncodedEvent:
    """An event, encoded."""
    return EncodedEvent(event.number, bool(event.lineage), _ENCODER.encode(event_view(event)))


def sse(each: EncodedEvent) -> bytes:
    """An event as a stream of events has it."""
    return b"id: %d\ndata: %b\n\n" % (each.number, each.data)


class ExecutionFeed:
    """The events of one execution, as far as they have come."""

    def __init__(self, tale: Tale, reader: ExecutionReader) -> None:
        self.execution = tale.accepted.id
        self.last = 0
        self.ended = False
        self.waiting: set[asyncio.Event] = set()
        self._tale = tale
        self._reader = reader
        self._rollups = Rollups(tale.plan)
        self._ring: deque[EncodedEvent] = deque(maxlen=RING)
        self._marks = [0]  # after which number of the journal the events behind each stride begin
        self._seen = 0
        self._pieces: dict[int, tuple[bytes, int]] = {}  # by the place they begin behind, oldest first
        self._joined = 0  # bytes of them
        self._rollup: tuple[int, float, bytes] = (-1, 0.0, b"")
        self._reading = asyncio.Lock()

    async def poll(self) -> None:
        """Read what is new, and wake who waits for it."""
        async with self._reading:
            if not self.last:
                self._keep(self._tale.beginning)
                self.wake()
            async for stored in self._reader.pieces(self.execution, self._seen, size=AT_ONCE):
                for each in stored:
                    self._take(each)
                self.wake()

    def _take(self, stored: StoredFact) -> None:
        self._seen = stored.number
        self._rollups.count(stored.fact)
        self._keep(self._tale.follow(stored))
        if self.last % STRIDE == 0:
            self._marks.append(stored.number)
        if isinstance(stored.fact, ExecutionEnded):
            self.ended = True

    def _keep(self, event: Event) -> None:
        self._ring.append(encode_event(event))
        self.last = event.number

    def wake(self) -> None:
        """There is news, or no more to wait for."""
        for each in self.waiting:
            each.set()

    def holds(self, after: int) -> bool:
        """Whether everything behind a number is in the ring."""
        return after >= self.last or (bool(self._ring) and self._ring[0].number <= after + 1)

    def newest(self, after: int) -> list[EncodedEvent]:
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

    def _join(self, after: int, found: list[EncodedEvent]) -> tuple[bytes, int]:
        if not found:
            return b"", after
        piece = b"".join(map(sse, found)), found[-1].number
        self._pieces[after] = piece
        self._joined += len(piece[0])
        while self._joined > MAX_MERGED_BYTES and len(self._pieces) > 1:
            dropped, _ = self._pieces.pop(next(iter(self._pieces)))
            self._joined -= len(dropped)
        return piece

    async def backlog(self, after: int, limit: int) -> list[EncodedEvent]:
        """The first so many events behind a number, from the journal."""
        stride = min(after // STRIDE, len(self._marks) - 1)
        number = max(stride * STRIDE, 1)  # of the event before the first fact that is read
        stored = await self._reader.facts(self.execution, self._marks[stride], after - number + limit + 1)
        found = [encode_event(self._tale.beginning)] if after < 1 else []
        for at, each in enumerate(stored, start=number + 1):
            if at > after:
                found.append(encode_event(self._tale.event(at, each)))
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


log = logging.getLogger("rune.master.live")

MIN_PAUSE_S = 0.02  # s between two looks
PER_FOLLOWER = 0.0002  # s: what is sent to many is sent less often, in larger pieces
MAX_PAUSE_S = 0.25  # s, however many follow and however much there is to look at
STORE_RETRY_DELAY_S = 1.0  # s after a look that failed
SHARE = 4  # a look is followed by a pause this many times as long

Look = Callable[[], Awaitable[None]]


class ChangeNotifier:
    """One look at the store for everybody. Nobody follows: it rests."""

    def __init__(self, reader: ExecutionReader) -> None:
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
                await self._tick()
            except Exception as error:
                # Whatever it was, the next look may succeed, and nobody else would take it.
                log.warning("cannot look: %s", error)
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            wanted = max(self.crowd * PER_FOLLOWER, SHARE * (time.thread_time() - began))
            await asyncio.sleep(min(MAX_PAUSE_S, max(MIN_PAUSE_S, wanted)))

    async def _tick(self) -> None:
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


MAX_SUBSCRIBERS = 5_000
MAX_BACKLOGS = 4


class FeedRegistry:
    """Opened when the first one comes, dropped when the last one goes."""

    def __init__(self, engine: Engine, reader: ExecutionReader, pulse: ChangeNotifier) -> None:
        self._backend = engine.backend
        self._reader = reader
        self._pulse = pulse
        self._open: dict[str, tuple[ExecutionFeed, int]] = {}
        self._clients = 0
        self.backlogs = asyncio.Semaphore(MAX_BACKLOGS)

    @property
    def closed(self) -> bool:
        """Whether everybody is to go."""
        return self._pulse.closed

    @asynccontextmanager
    async def subscribe(self, execution: str) -> AsyncIterator[ExecutionFeed]:
        """Follow an execution while the block runs."""
        if self._clients >= MAX_SUBSCRIBERS:
            raise ApiError(f"{MAX_SUBSCRIBERS:,} are watching already", code="TOO_MANY_WATCH")
        self._clients += 1
        self._pulse.crowd = self._clients
        try:
            watch = await self._enter(execution)
            try:
                await watch.poll()
                yield watch
            finally:
                self._leave(watch)
        finally:
            self._clients -= 1
            self._pulse.crowd = self._clients

    async def _enter(self, execution: str) -> ExecutionFeed:
        if execution not in self._open:
            accepted = await self._reader.accepted(execution)
            plan = await self._reader.plan(execution)
            tale = Tale(accepted, plan, self._backend.journal, self._backend.blob, [])
            if execution not in self._open:
                made = ExecutionFeed(tale, self._reader)
                self._open[execution] = (made, 0)
                self._pulse.join(made, made.poll, made.wake)
        watch, count = self._open[execution]
        self._open[execution] = (watch, count + 1)
        return watch

    def _leave(self, watch: ExecutionFeed) -> None:
        _, count = self._open[watch.execution]
        if count > 1:
            self._open[watch.execution] = (watch, count - 1)
        else:
            del self._open[watch.execution]
            self._pulse.leave(watch)

    async def until_end(self, execution: str, seconds: float) -> bool:
        """Until an execution has ended, or so long."""
        news = asyncio.Event()
        async with self.subscribe(execution) as watch:
            watch.waiting.add(news)
            try:
                async with asyncio.timeout(seconds):
                    while not watch.ended and not self.closed:
                        news.clear()
                        await news.wait()
            except TimeoutError:
                pass
            finally:
                watch.waiting.discard(news)
            return watch.ended


class Subscription(ABC):
    """Wakes up for news, for a sign of life that is due, and to go."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.gone = False
        self._reminded = False

    def leave(self, *_: object) -> None:
        """Whoever followed has gone."""
        self.gone = True
        self.news.set()

    def remind(self) -> None:
        """A sign of life is due."""
        self._reminded = True
        self.news.set()

    @abstractmethod
    def pieces(self) -> AsyncGenerator[list[EncodedEvent] | bytes | None, None]:
        """What is to be sent, piece by piece: events, or bytes of them; None where only a sign of life is due."""
