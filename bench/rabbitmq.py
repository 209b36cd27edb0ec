"""What RabbitMQ takes: the bare client doing a hop (deliver, confirmed publish, ack), its rate and its CPU.

    python bench/rabbitmq.py [amqp://…] [--hops 60000] [--quorum]

Without an address a broker is started on this machine for as long as this takes. With `--quorum` the queue is one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder: its names hide those of the library
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rune.adapters.rabbitmq.client import Channel, Message, Stamp, connect

QUEUE = "bench.hops"
TOKENS = 500  # messages that go around
STAMP = Stamp()
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


async def measure(url: str, wanted: int, quorum: bool) -> None:
    rates, costs = [], []
    for _ in range(3):
        rate, cost = await hops(url, wanted, TOKENS, quorum)
        rates.append(rate)
        costs.append(cost)
    each = ", ".join(f"{rate:,.0f}" for rate in rates)
    kind = "quorum" if quorum else "classic"
    print(f"hops, {kind:8} {statistics.median(rates):8,.0f}/s   ({each})")
    print(f"client CPU    {statistics.median(costs):8.1f} µs a hop")
    rate, cost = await hops(url, 1000, 1, quorum)
    print(f"one by one    {rate:8,.0f}/s   {1000 / rate:.2f} ms a hop, {cost:.0f} µs CPU")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--hops", type=int, default=60_000)
    parser.add_argument("--quorum", action="store_true")
    given = parser.parse_args(arguments)
    url: Any = given.url
    if url is None:
        from tests.services.rabbitmq import new_broker  # noqa: PLC0415 - only who has no broker needs one

        url = new_broker().url()
    try:
        import uvloop  # noqa: PLC0415

        runner: Any = uvloop.run
    except ImportError:
        runner = asyncio.run
    runner(measure(url, given.hops, given.quorum))


if __name__ == "__main__":
    main()
