"""Minimal queue over aio-pika, independent of the project's own AMQP client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import count

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from rune.core.execution.token import Token
from rune.ports.queue import LANES, Delivery, lane_of, lanes_at


class AioPikaQueue:
    """Three queues, one consumer each, on the default exchange."""

    def __init__(self, url: str, prefetch: int) -> None:
        self._url = url
        self._prefetch = prefetch
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._consuming: asyncio.Future[None] | None = None
        self._opening = asyncio.Lock()
        self._tags = count(1)
        self._held: dict[int, tuple[str, AbstractIncomingMessage]] = {}
        self._lanes: dict[str, deque[AbstractIncomingMessage]] = {lane: deque() for lane in LANES}
        self._arrived = asyncio.Event()
        self._turn = 0
        self._running = asyncio.Event()
        self._running.set()
        self._later: set[asyncio.Task[None]] = set()

    async def _open(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None:
                self._connection = await aio_pika.connect(self._url)
                self._channel = await self._connection.channel(publisher_confirms=True)
                await self._channel.set_qos(self._prefetch)
                for lane in LANES:
                    await self._channel.declare_queue(lane, durable=True)
            return self._channel

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        await asyncio.gather(
            *(
                self._publish(
                    LANES[lane_of(priority, items=bool(token.path))], msgspec.json.encode((execution, token))
                )
                for token in tokens
            )
        )

    async def _publish(self, lane: str, body: bytes) -> None:
        channel = await self._open()
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, lane, mandatory=True)

    async def _consume(self) -> None:
        if self._consuming is None:
            self._consuming = asyncio.ensure_future(self._begin())
        await asyncio.shield(self._consuming)  # the first receiver may be cancelled

    async def _begin(self) -> None:
        channel = await self._open()
        for lane in LANES:
            queue = await channel.get_queue(lane)
            await queue.consume(self._taker(lane))

    def _taker(self, lane: str):  # type: ignore[no-untyped-def]
        async def taken(message: AbstractIncomingMessage) -> None:
            self._lanes[lane].append(message)
            self._arrived.set()

        return taken

    async def receive(self) -> Delivery:
        await self._consume()
        while not any(self._lanes.values()) or not self._running.is_set():
            await self._running.wait()
            if not any(self._lanes.values()):
                self._arrived.clear()
                await self._arrived.wait()
        lane, message = self._next()
        execution, token = msgspec.json.decode(message.body, type=tuple[str, Token])
        tag = next(self._tags)
        self._held[tag] = (lane, message)
        return Delivery(execution, token, tag, bool(message.redelivered))

    def _next(self) -> tuple[str, AbstractIncomingMessage]:
        self._turn += 1
        lane = next(LANES[each] for each in lanes_at(self._turn) if self._lanes[LANES[each]])
        return lane, self._lanes[lane].popleft()

    async def receive_more(self, delivery: Delivery, limit: int) -> list[Delivery]:
        return []

    async def ack(self, delivery: Delivery) -> None:
        await self._held.pop(delivery.tag)[1].ack()

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        lane, message = self._held.pop(delivery.tag)

        async def again() -> None:
            await self._publish(lane, message.body)
            await message.ack()

        if delay <= 0:
            await again()
            return

        def begin() -> None:
            work = asyncio.ensure_future(again())
            self._later.add(work)
            work.add_done_callback(self._later.discard)

        asyncio.get_running_loop().call_later(delay, begin)

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        await self.ack(delivery)

    async def pause(self) -> None:
        self._running.clear()

    async def resume(self) -> None:
        self._running.set()

    async def close(self) -> None:
        if self._connection is not None:  # close() may hang
            await asyncio.wait([asyncio.ensure_future(self._connection.close())], timeout=5)
