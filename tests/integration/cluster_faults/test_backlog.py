"""A backlog on RabbitMQ keeps its length while stores lose their data, and is served when the faults are over."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from rune.adapters.redis.encoding import PARTITIONS
from rune.nodes.registry import full_registry
from tests.support.backends import NODES, flush_redis, open_engines, redis_command
from tests.support.clusters import Cluster, open_cluster
from tests.support.rabbitmq_queues import VhostQueues
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

BACKLOG = 150
SLOTS = 2
LOSSES = 3
LANE = "workflow.execution.low"
LATER_MS = 20_000  # nothing is sent again that soon
DRAINED_S = 60.0


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    with open_cluster(tmp_path, "rabbitmq", workers=1, in_place=False, slots=SLOTS) as made:
        yield made


async def _rests(cluster: Cluster, executions: list[str]) -> bool:
    """Return whether the state of all executions is there, and no token but those that run will be sent soon."""
    prefix = cluster.settings.prefix
    names = await redis_command("KEYS", f"{prefix}:*:x:*")
    loaded = {name.decode().rpartition(":x:")[2] for name in names}
    if not loaded.issuperset(executions):
        return False
    now = int((await redis_command("TIME"))[0]) * 1000
    soon = later = 0
    for part in range(PARTITIONS):
        held = f"{prefix}:{{p{part:02d}}}:held"
        soon += await redis_command("ZCOUNT", held, "-inf", now + LATER_MS)
        later += await redis_command("ZCOUNT", held, now + LATER_MS, "+inf")
    return soon <= SLOTS and later >= len(executions) - SLOTS


def test_backlog_does_not_grow_by_losses_and_is_served_after_them(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    opens = tmp_path / "opens"
    os.mkfifo(opens)
    document = workflow("start>a a>b", a=of_type("ledger.gate", opens=str(opens)), b=of_type("noop"))
    lanes = VhostQueues(cluster.settings.queue, "")
    vhost = cluster.settings.queue.rpartition("/")[2]

    async def go() -> float:
        async with open_engines(cluster.settings, roles=frozenset(), registry=full_registry(NODES)) as engine:
            runs = [await engine.start(document, priority=3) for _ in range(BACKLOG)]
            executions = [each.id for each in runs]
            lengths = []
            for _ in range(LOSSES):
                await flush_redis()
                await until(lambda: _rests(cluster, executions), "all executions are loaded again")
                lengths.append(await lanes.waiting(LANE))
            assert max(lengths) <= BACKLOG, f"{lengths} messages for {BACKLOG} tokens"
            for worker in cluster.fleet.of("worker"):
                worker.kill()
            await asyncio.to_thread(broker().api, "DELETE", f"queues/{vhost}/{LANE}/contents")
            opens.unlink()
            opens.write_text("go")
            await asyncio.to_thread(cluster.start_worker, RUNE_SLOTS="16")
            over = time.monotonic()
            for each in runs:
                await each.end()
            await until(lambda: _is_empty(lanes), "the lane is empty", DRAINED_S)
            return time.monotonic() - over

    assert asyncio.run(go()) < DRAINED_S
    effects = cluster.effects()
    assert len(effects) == BACKLOG
    assert sum(effects.values()) <= BACKLOG + SLOTS * (LOSSES + 1), "only what ran at a fault runs again"


async def _is_empty(lanes: VhostQueues) -> bool:
    return await lanes.waiting(LANE) == 0
