"""The bare client doing a hop: a delivery, a confirmed publish, an ack, with persistent messages of 1 KB."""

from __future__ import annotations

import asyncio
import time

from rune.adapters.rabbitmq.amqp.client import Channel, Message, MessageProperties, connect

QUEUE = "bench.hops"
TOKENS = 500  # messages that go around
STAMP = MessageProperties()
BODY = b'{"value":"' + b"x" * 1000 + b'"}'


class Hops:
    """A message that comes in goes out again, and is let go when the broker has taken its successor."""

    def __init__(self, channel: Channel, posting: Channel, wanted: int) -> None:
        self._channel = channel
        self._posting = posting
        self._to_go = self._left = wanted
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, message: Message) -> None:
        if self._to_go == 0:
            return
        self._to_go -= 1
        posted = self._posting.publish("", QUEUE, message.body)
        posted.add_done_callback(lambda _: self._taken(message.tag))

    def _taken(self, tag: int) -> None:
        self._channel.ack(tag)
        self._left -= 1
        if self._left == 0 and not self.done.done():
            self.done.set_result(None)


async def hops(url: str, wanted: int, tokens: int, quorum: bool) -> tuple[float, float]:
    """Hops a second, and microseconds of this process's CPU for each."""
    consuming, posting = await connect(url, name="bench in"), await connect(url, name="bench out")
    channel, out = await consuming.channel(), await posting.channel()
    await out.confirm()
    await channel.declare_queue(QUEUE, {"x-queue-type": "quorum" if quorum else "classic"})
    await channel.purge(QUEUE)
    await out.publish_all(("", QUEUE, BODY, STAMP) for _ in range(tokens))
    await channel.prefetch(tokens)
    running = Hops(channel, out, wanted)
    began, cpu = time.perf_counter(), time.process_time()
    await channel.consume(QUEUE, running.take, "bench")
    await running.done
    took, used = time.perf_counter() - began, time.process_time() - cpu
    await channel.delete_queue(QUEUE)
    await consuming.close()
    await posting.close()
    return wanted / took, used / wanted * 1e6
