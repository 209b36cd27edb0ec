"""Consumes from RabbitMQ: deliveries for the free slots of a worker, statuses and completions for an API process.

Usually the broker pushes: each lane has a consumer whose prefetch is the number of slots. If a delivery waits too long
for a slot, because several lanes are full or nodes run long, all waiting deliveries are requeued for other workers and
the consumer pulls one message per free slot, until half of the slots are free or the queues are empty.

Statuses, in batches, and completions, one after another, are hints: the journal is the truth. Such a message is
acknowledged whatever its content, so that neither queue grows unread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import REPLY_TIMEOUT_S, ReconnectingConnection
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError
from rune.adapters.rabbitmq.amqp.frames import Message
from rune.adapters.rabbitmq.topology import Topology, declare
from rune.ports.journal import EventHandler
from rune.ports.queue import LANE_ORDERS, LANES, lanes_at

log = logging.getLogger("rune.rabbitmq")

MAX_SLOT_WAIT_S = 0.25
"""How long a delivery may wait for a slot."""

WATCH_PERIOD_S = 10.0
"""Interval between two checks whether the broker still has the consumers."""

RECONNECT_TIMEOUT_S = 60.0

SAMPLE_PERIOD_S = 0.25
"""How often the time of sending of a message is read, per lane: decoding it for each would cost as much as the rest."""

STATUS_PREFETCH = 100
COMPLETION_PREFETCH = 1


class HeldMessage(msgspec.Struct):
    """An unprocessed delivery, received at `since`. `early`: it was acknowledged while its node still runs."""

    channel: Channel
    queue: str
    message: Message
    since: float
    early: bool = False


class Consumer:
    """Receives messages; every waiting call of `receive` counts as a free slot."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        name: str,
        prefetch: int,
        requeue: Callable[[HeldMessage], None],
        *,
        deadline: float,
        watch: float = WATCH_PERIOD_S,
    ) -> None:
        self._topology = topology
        self._name = name
        self._prefetch = max(1, prefetch)
        self._requeue = requeue
        self._watch = watch
        self._loop: asyncio.AbstractEventLoop
        self._lanes: tuple[deque[HeldMessage], ...] = tuple(deque() for _ in LANES)
        self._orders = tuple(map(lanes_at, range(LANE_ORDERS)))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._pulled = 0
        self._arrived = 0
        self.delivered: dict[str, int] = {}
        """By lane, when the newest message that arrived here was sent (epoch ms)."""
        self._sampled_at: dict[str, float] = {}
        self._channel: Channel | None = None
        self._pulling = False
        self._paused = False
        self._wanted = asyncio.Event()
        self._surplus: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.link = ReconnectingConnection(url, name, self._prepare, deadline=deadline)

    async def receive(self) -> HeldMessage:
        """Wait for a delivery."""
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self.link.start()
            self._tasks = [asyncio.create_task(self._pull_loop()), asyncio.create_task(self._watch_loop())]
        while True:
            found = self._next()
            if found is not None:
                if self._pulling and self._waiting:
                    # Until it was taken, this delivery counted for a slot that still waits.
                    self._wanted.set()
                return found
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            if self._pulling:
                self._wanted.set()
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_waiting()
                raise

    async def close(self) -> None:
        """Close the connection; the broker requeues unacknowledged deliveries."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._surplus is not None:
            self._surplus.cancel()
        await self.link.close()

    def pause(self) -> None:
        """Receive nothing more. The loop that pulls cancels the consumers and requeues what has arrived."""
        self._paused = self._pulling = True
        self._wanted.set()

    def resume(self) -> None:
        """Receive again."""
        self._paused = False
        self._wake_waiting()
        self._wanted.set()

    @property
    def pulling(self) -> bool:
        return self._pulling

    def _next(self) -> HeldMessage | None:
        if self._paused:
            return None
        self._turn += 1
        for lane in self._orders[self._turn % LANE_ORDERS]:
            if self._lanes[lane]:
                return self._lanes[lane].popleft()
        return None

    def _count(self) -> int:
        return sum(map(len, self._lanes))

    def _free(self) -> int:
        """Return the number of waiting slots without a delivery; none during a pause."""
        if self._paused:
            return 0
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return len(self._waiting) - self._count()

    def _wake_waiting(self) -> None:
        """Wake one waiting call of `receive` per delivery."""
        available = self._count()
        while available and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                available -= 1

    def _take(self, lane: int, queue: str, channel: Channel, message: Message) -> None:
        self._arrived += 1
        now = self._loop.time()
        self._lanes[lane].append(HeldMessage(channel, queue, message, now))
        if now - self._sampled_at.get(queue, float("-inf")) >= SAMPLE_PERIOD_S:
            self._sampled_at[queue] = now
            self._note_sent(queue, message)
        if self._waiting and not self._paused:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
            self._wake_waiting()
        if self._surplus is None:
            self._surplus = self._loop.call_later(MAX_SLOT_WAIT_S, self._relieve)

    def _note_sent(self, queue: str, message: Message) -> None:
        """Note when a message was sent. Another program may have published it, with any timestamp or none."""
        try:
            sent = message.properties.timestamp
            when = 0 if sent is None else round(sent.timestamp() * 1000)
        except Exception:
            return
        newest = max(self.delivered.get(queue, 0), min(when, round(time.time() * 1000)))
        self.delivered[queue] = newest

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        # The broker redelivers what arrived over the lost channel.
        for lane in self._lanes:
            lane.clear()
        channel = await connection.channel()
        channel.on_close = self._on_channel_closed
        self._channel = channel
        self._pulling = self._paused
        if not self._paused:
            await self._consume(channel)

    def _on_channel_closed(self, error: AmqpError) -> None:
        for lane in self._lanes:
            lane.clear()
        self.link.drop(error.message)

    async def _consume(self, channel: Channel) -> None:
        await channel.prefetch(self._prefetch)
        for lane, name in enumerate(LANES):
            for queue in self._topology.queues:
                await self._consume_lane(channel, lane, self._topology.lane(queue, name))

    async def _consume_lane(self, channel: Channel, lane: int, queue: str) -> None:
        def on_message(message: Message) -> None:
            self._take(lane, queue, channel, message)

        await channel.consume(
            queue,
            on_message,
            f"{self._name} {queue}",
            lambda _: self.link.drop(f"consumer of {queue} was cancelled"),
        )

    def _relieve(self) -> None:
        """Requeue waiting deliveries for other workers if one of them has waited too long."""
        self._surplus = None
        oldest = min((lane[0].since for lane in self._lanes if lane), default=None)
        if oldest is None:
            return
        left = oldest + MAX_SLOT_WAIT_S - self._loop.time()
        if left > 0:
            self._surplus = self._loop.call_later(left, self._relieve)
        # The slot for which a message was pulled no longer waits.
        elif self._pulling:
            self._requeue_waiting()
        else:
            self._pulling = True
            self._wanted.set()

    def _requeue_waiting(self) -> None:
        for lane in self._lanes:
            while lane:
                self._requeue(lane.popleft())

    async def _pull_loop(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.link.up(RECONNECT_TIMEOUT_S)
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
        self._requeue_waiting()
        while channel.error is None:
            free = self._free()
            if free >= max(1, self._prefetch // 2):
                break
            if free <= 0:
                if self._paused:
                    self._requeue_waiting()
                self._wanted.clear()
                await self._wanted.wait()
                continue
            if not await self._pull_one(channel):
                break
        if channel.error is None:
            self._pulling = False
            await self._consume(channel)

    async def _pull_one(self, channel: Channel) -> bool:
        """Pull one message and return whether there was one. Lanes and queues take turns in being tried first, so that
        none starves."""
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

    async def _watch_loop(self) -> None:
        """Reconnect if the broker has lost a consumer without reporting it."""
        seen = -1
        while True:
            await asyncio.sleep(self._watch)
            connection = self.link.connection
            if not self.link.is_up or connection is None or self._pulling:
                continue
            idle, seen = seen == self._arrived, self._arrived
            try:
                channel = await connection.channel()
                for queue in self._topology.work:
                    found = await channel.declare_queue(queue, passive=True)
                    if found.consumer_count == 0 or (idle and found.message_count and self._free() > 0):
                        self.link.drop(f"{queue} has lost its consumer")
                        break
                else:
                    await channel.close()
            except AmqpError as error:
                if error.code != "ACCESS_REFUSED":
                    self.link.drop(error.message)


class RabbitEventConsumer:
    """Passes messages to a handler while `run` runs. The broker distributes them among all API processes."""

    def __init__(self, url: str, topology: Topology, name: str) -> None:
        self._topology = topology
        self._name = f"{name} events"
        self._statuses: deque[tuple[Channel, Message]] = deque()
        self._completions: deque[tuple[Channel, Message]] = deque()
        self._arrived = asyncio.Event()
        self._link = ReconnectingConnection(url, self._name, self._prepare, deadline=REPLY_TIMEOUT_S)

    async def run(self, handler: EventHandler) -> None:
        """Consume until cancelled."""
        self._link.start()
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                await self._handle_statuses(handler)
                await self._handle_completions(handler)
        finally:
            await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        await declare(connection, self._topology)
        # The broker redelivers what arrived over the lost connection.
        self._statuses.clear()
        self._completions.clear()
        await self._consume(connection, self._topology.status, STATUS_PREFETCH, self._statuses)
        await self._consume(connection, self._topology.completion, COMPLETION_PREFETCH, self._completions)

    async def _consume(
        self, connection: Connection, queue: str, prefetch: int, arrived: deque[tuple[Channel, Message]]
    ) -> None:
        channel = await connection.channel()
        channel.on_close = lambda error: self._link.drop(error.message)

        def take(message: Message) -> None:
            arrived.append((channel, message))
            self._arrived.set()

        await channel.prefetch(prefetch)
        reason = f"{queue} was deleted"
        await channel.consume(queue, take, f"{self._name} {queue}", lambda _: self._link.drop(reason))

    async def _handle_statuses(self, handler: EventHandler) -> None:
        batch = [self._statuses.popleft() for _ in range(len(self._statuses))]
        if not batch:
            return
        try:
            await handler.on_statuses([message.body for _, message in batch])
        except Exception:
            # Any exception: the next messages may be handled, and no other task would take them.
            log.exception("handling %d statuses failed", len(batch))
        for channel, message in batch:
            channel.ack(message.tag)

    async def _handle_completions(self, handler: EventHandler) -> None:
        while self._completions:
            channel, message = self._completions.popleft()
            try:
                await handler.on_completion(message.body)
            except Exception:
                log.exception("handling a completion failed")
            channel.ack(message.tag)
