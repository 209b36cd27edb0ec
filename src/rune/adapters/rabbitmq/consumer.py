"""The intake: deliveries for free slots, over a connection of its own.

Usually the broker pushes: each lane has a consumer that may hold as many deliveries as there are slots. As long as
slots come free quickly that is exact enough. If a delivery has waited for a slot too long (several lanes are full, or
nodes run long) everything that waits goes back for others, and the intake pulls message by message, one for each free
slot, until half of the slots are free or nothing is left to pull.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError
from rune.adapters.rabbitmq.amqp.frames import Message
from rune.adapters.rabbitmq.topology import Topology, declare
from rune.ports.queue import LANES, lanes_at

log = logging.getLogger("rune.rabbitmq")

SLOT_WAIT_S = 0.25  # s that a delivery may wait for a slot
WATCH_PERIOD_S = 10.0  # s between two looks at whether the consumers still are there


class HeldMessage(msgspec.Struct):
    """A delivery in our hands. `since`: when it came; `early`: it was acknowledged while it still runs."""

    channel: Channel
    queue: str
    message: Message
    since: float
    early: bool = False


class Consumer:
    """Whoever waits in `receive` is a free slot."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        name: str,
        prefetch: int,
        hand_back: Callable[[HeldMessage], None],
        *,
        deadline: float,
        watch: float = WATCH_PERIOD_S,
    ) -> None:
        self._topology = topology
        self._name = name
        self._prefetch = max(1, prefetch)
        self._hand_back = hand_back
        self._watch = watch
        self._loop: asyncio.AbstractEventLoop
        self._lanes: tuple[deque[HeldMessage], ...] = tuple(deque() for _ in LANES)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._pulled = 0
        self._arrived = 0
        self._channel: Channel | None = None
        self._pulling = False
        self._wanted = asyncio.Event()
        self._surplus: asyncio.TimerHandle | None = None
        self._works: list[asyncio.Task[None]] = []
        self.link = ReconnectingConnection(url, name, self._prepare, deadline=deadline)

    async def receive(self) -> HeldMessage:
        """Wait for a delivery."""
        if not self._works:
            self._loop = asyncio.get_running_loop()
            self.link.start()
            self._works = [asyncio.create_task(self._pull()), asyncio.create_task(self._guard())]
        while True:
            found = self._next()
            if found is not None:
                return found
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            if self._pulling:
                self._wanted.set()
            try:
                await waiter
            except asyncio.CancelledError:
                self._call()
                raise

    async def close(self) -> None:
        """What nobody took goes back to its queue with the connection."""
        for each in self._works:
            each.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        if self._surplus is not None:
            self._surplus.cancel()
        await self.link.close()

    @property
    def pulling(self) -> bool:
        return self._pulling

    def _next(self) -> HeldMessage | None:
        self._turn += 1
        for lane in lanes_at(self._turn):
            if self._lanes[lane]:
                return self._lanes[lane].popleft()
        return None

    def _count(self) -> int:
        return sum(map(len, self._lanes))

    def _free(self) -> int:
        """How many slots wait, beyond what is there for them."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return len(self._waiting) - self._count()

    def _call(self) -> None:
        """Wake as many as there is work for."""
        calls = self._count()
        while calls and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                calls -= 1

    def _take(self, lane: int, queue: str, channel: Channel, message: Message) -> None:
        self._arrived += 1
        self._lanes[lane].append(HeldMessage(channel, queue, message, self._loop.time()))
        if self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
            self._call()
        if self._surplus is None:
            self._surplus = self._loop.call_later(SLOT_WAIT_S, self._relieve)

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        for lane in self._lanes:
            lane.clear()  # they came by a channel that is gone, and come again
        channel = await connection.channel()
        channel.on_close = self._lost
        self._channel = channel
        self._pulling = False
        await self._consume(channel)

    def _lost(self, error: AmqpError) -> None:
        for lane in self._lanes:
            lane.clear()
        self.link.drop(error.message)

    async def _consume(self, channel: Channel) -> None:
        await channel.prefetch(self._prefetch)
        for lane, name in enumerate(LANES):
            for queue in self._topology.queues:
                await self._consume_lane(channel, lane, self._topology.lane(queue, name))

    async def _consume_lane(self, channel: Channel, lane: int, queue: str) -> None:
        def taken(message: Message) -> None:
            self._take(lane, queue, channel, message)

        await channel.consume(
            queue,
            taken,
            f"{self._name} {queue}",
            lambda _: self.link.drop(f"consumer of {queue} was cancelled"),
        )

    def _relieve(self) -> None:
        """Called while deliveries wait: if one has waited too long, others shall have them."""
        self._surplus = None
        oldest = min((lane[0].since for lane in self._lanes if lane), default=None)
        if oldest is None:
            return
        left = oldest + SLOT_WAIT_S - self._loop.time()
        if left > 0:
            self._surplus = self._loop.call_later(left, self._relieve)
        elif self._pulling:  # whoever it was pulled for has gone
            self._give_up_surplus()
        else:
            self._pulling = True
            self._wanted.set()

    def _give_up_surplus(self) -> None:
        for lane in self._lanes:
            while lane:
                self._hand_back(lane.popleft())

    async def _pull(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.link.up(60.0)
                channel = self._channel
                assert channel is not None
                if self._pulling:
                    await self._pull_on(channel)
            except AmqpError as error:
                if not isinstance(error, BrokerUnavailableError):
                    self.link.drop(error.message)

    async def _pull_on(self, channel: Channel) -> None:
        for queue in self._topology.work:
            await channel.cancel(f"{self._name} {queue}")
        self._give_up_surplus()
        while channel.error is None:
            free = self._free()
            if free >= max(1, self._prefetch // 2):
                break
            if free <= 0:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            if not await self._pull_one(channel):
                break
        if channel.error is None:
            self._pulling = False
            await self._consume(channel)

    async def _pull_one(self, channel: Channel) -> bool:
        """Whether there was one. Lanes and queues take turns at being looked at first, so that none is forgotten."""
        self._pulled += 1
        queues = self._topology.queues
        first = self._pulled % len(queues)
        for lane in lanes_at(self._pulled):
            for queue in (*queues[first:], *queues[:first]):
                full = self._topology.lane(queue, LANES[lane])
                message = await channel.get(full)
                if message is not None:
                    self._take(lane, full, channel, message)
                    return True
        return False

    async def _guard(self) -> None:
        """A consumer can be gone without anybody having said so."""
        seen = -1
        while True:
            await asyncio.sleep(self._watch)
            connection = self.link.connection
            if not self.link.is_up or connection is None or self._pulling:
                continue
            quiet, seen = seen == self._arrived, self._arrived
            try:
                channel = await connection.channel()
                for queue in self._topology.work:
                    found = await channel.declare_queue(queue, passive=True)
                    if found.consumer_count == 0 or (quiet and found.message_count and self._free() > 0):
                        self.link.drop(f"{queue} has lost its consumer")
                        break
                else:
                    await channel.close()
            except AmqpError as error:
                if error.code != "ACCESS_REFUSED":
                    self.link.drop(error.message)
