"""A backlog: messages that were sent while nobody read them, and how a worker gets through them."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.cluster_stores import Bench, running
from bench.rabbitmq_stores import Brokered
from rune.adapters.rabbitmq.amqp.client import Channel, connect
from rune.bench import workloads
from tests.services.fleet import Process

QUEUE = "workflow.execution"
AT_ONCE = 200
LOOK = 0.5  # s


class Drained(NamedTuple):
    """By thirds of the messages: how many went in a second, and the worker's memory at its end (MB)."""

    rates: list[float]
    memory: list[float]
    most: int

    @property
    def steady(self) -> float:
        return self.rates[-1] / self.rates[0]

    @property
    def growth(self) -> float:
        return self.memory[-1] / self.memory[0]


async def drained(stores: Brokered, count: int) -> Drained:
    """Executions of one node with an effect, all accepted before there is a worker."""
    async with running(stores, workers=0) as bench:
        await _filled(bench, count)
        connection = await connect(bench.settings.queue, name="bench")
        channel = await connection.channel()
        most = await _ready(channel)
        worker = bench.workers.start("worker")
        worker.wait_ready()
        moments, memory = [time.perf_counter()], []
        for third in (1, 2, 3):
            while (ready := await _ready(channel)) > count - count * third // 3:
                most = max(most, ready)
                await asyncio.sleep(LOOK)
            moments.append(time.perf_counter())
            memory.append(_megabytes(worker))
        await connection.close()
    rates = [count / 3 / (after - before) for before, after in pairwise(moments)]
    return Drained(rates, memory, most)


async def _filled(bench: Bench, count: int) -> None:
    plan = workloads.chain(1, bench.catalogue, effectful=True)
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await bench.engine.launcher.start(plan, b"{}")

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


async def _ready(channel: Channel) -> int:
    found = await channel.declare_queue(QUEUE, passive=True)
    return int(found.message_count or 0)


def _megabytes(worker: Process) -> float:
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
