"""Measures how a worker drains a backlog of messages published before it started."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.cluster_stores import Bench, running
from bench.rabbitmq_stores import Brokered
from rune.adapters.rabbitmq.amqp.client import Channel, connect
from rune.cli.bench import workloads
from tests.support.services.fleet import Process

QUEUE = "workflow.execution"
CONCURRENCY = 200
POLL_INTERVAL_S = 0.5


class Drained(NamedTuple):
    """Messages per second in each third of the backlog, and the worker's memory in MB at the end of each."""

    rates: list[float]
    memory: list[float]
    most: int

    @property
    def steady(self) -> float:
        return self.rates[-1] / self.rates[0]

    @property
    def growth(self) -> float:
        return self.memory[-1] / self.memory[0]


async def drain(stores: Brokered, count: int) -> Drained:
    """Accept executions of one effectful node, then start a worker and measure it."""
    async with running(stores, workers=0) as bench:
        await _fill(bench, count)
        connection = await connect(bench.settings.queue, name="bench")
        channel = await connection.channel()
        most = await _ready(channel)
        worker = bench.workers.start("worker")
        worker.wait_ready()
        moments, memory = [time.perf_counter()], []
        for third in (1, 2, 3):
            while (ready := await _ready(channel)) > count - count * third // 3:
                most = max(most, ready)
                await asyncio.sleep(POLL_INTERVAL_S)
            moments.append(time.perf_counter())
            memory.append(_megabytes(worker))
        await connection.close()
    rates = [count / 3 / (after - before) for before, after in pairwise(moments)]
    return Drained(rates, memory, most)


async def _fill(bench: Bench, count: int) -> None:
    plan = workloads.chain(1, bench.catalogue, effectful=True)
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            launcher = bench.engine.launcher
            await launcher.start(launcher.new_record(plan, b"{}"), plan, new_id=True)

    await asyncio.gather(*(lane() for _ in range(CONCURRENCY)))


async def _ready(channel: Channel) -> int:
    found = await channel.declare_queue(QUEUE, passive=True)
    return int(found.message_count or 0)


def _megabytes(worker: Process) -> float:
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
