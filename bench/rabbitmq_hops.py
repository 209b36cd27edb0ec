"""The bare AMQP client: each hop is a delivery, a confirmed publish and an ack of a persistent 1 KB message."""

from __future__ import annotations

import asyncio
import time

from rune.adapters.rabbitmq.amqp.client import Channel, Message, MessageProperties, connect

QUEUE = "bench.hops"
MESSAGES = 500
PROPERTIES = MessageProperties()
BODY = b'{"value":"' + b"x" * 1000 + b'"}'


class Hops:
    """Republishes each delivered message, and acknowledges it once the broker has confirmed the new one."""

    def __init__(self, channel: Channel, publishing: Channel, hops: int) -> None:
        self._channel = channel
        self._publishing = publishing
        self._to_publish = self._to_confirm = hops
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, message: Message) -> None:
        if self._to_publish == 0:
            return
        self._to_publish -= 1
        confirmation = self._publishing.publish("", QUEUE, message.body)
        confirmation.add_done_callback(lambda _: self._confirmed(message.tag))

    def _confirmed(self, tag: int) -> None:
        self._channel.ack(tag)
        self._to_confirm -= 1
        if self._to_confirm == 0 and not self.done.done():
            self.done.set_result(None)


async def hops(url: str, count: int, messages: int, quorum: bool) -> tuple[float, float]:
    """Return the hops per second and the CPU time of this process in µs per hop."""
    consuming, publishing = await connect(url, name="bench in"), await connect(url, name="bench out")
    channel, out = await consuming.channel(), await publishing.channel()
    await out.confirm()
    await channel.declare_queue(QUEUE, {"x-queue-type": "quorum" if quorum else "classic"})
    await channel.purge(QUEUE)
    await out.publish_all(("", QUEUE, BODY, PROPERTIES) for _ in range(messages))
    await channel.prefetch(messages)
    running = Hops(channel, out, count)
    began, cpu = time.perf_counter(), time.process_time()
    await channel.consume(QUEUE, running.take, "bench")
    await running.done
    took, used = time.perf_counter() - began, time.process_time() - cpu
    await channel.delete_queue(QUEUE)
    await consuming.close()
    await publishing.close()
    return count / took, used / count * 1e6
