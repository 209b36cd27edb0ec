"""Measures how long the rebuild of running executions takes after Redis has lost its data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rune.bootstrap import open_reader, running_engine
from rune.core.execution.fact import ExecutionEnded
from rune.nodes.registry import full_registry
from rune.testing.harness import compiled
from tests.chaos.breakable_cluster import BreakableCluster, breakable_cluster
from tests.chaos.effects import read_effects
from tests.support.workflows import Fields, edit, of_type, split, workflow

UNSERVED_QUEUE = "later"
"""A queue that no worker serves until the wipe is over."""

CONCURRENCY = 50
TIMEOUT_S = 600.0


class RebuildResult(NamedTuple):
    """Seconds from the wipe until all states were rebuilt and until all executions had ended, and the violations."""

    states: float
    ended: float
    violations: list[str]


def _document() -> Fields:
    effect = of_type("chaos.effect", did="e")
    return workflow(
        "start>a a>s s>e e>i i>g g>c c>out",
        a=effect, s=split("{{ range(4) }}"), e=effect, i=edit(v="{{ $item }}"), g=of_type("aggregator"),
        c={**effect, "queue": UNSERVED_QUEUE}, out=of_type("output", value="{{ [x.v for x in $g] }}"),
    )  # fmt: skip


async def _start(cluster: BreakableCluster, count: int) -> list[str]:
    settings = cluster.fleet.settings
    async with running_engine(settings, registry=full_registry(settings.nodes), working=False) as engine:
        plan = compiled(_document(), engine.registry)
        window = asyncio.Semaphore(CONCURRENCY)

        async def one() -> str:
            async with window:
                return (await engine.launcher.start(engine.launcher.new_record(plan, b"{}"), plan)).id

        return await asyncio.gather(*(one() for _ in range(count)))


def _queue_length(cluster: BreakableCluster) -> int:
    lanes = cluster.redis.command("--scan", "--pattern", f"*:stream:{UNSERVED_QUEUE}:*").split()
    return sum(int(cluster.redis.command("XLEN", each)) for each in lanes)


def _state_count(cluster: BreakableCluster) -> int:
    keys = cluster.redis.command("--scan", "--pattern", "*:x:*").split()
    return sum(key.rpartition(":x:")[2].isalnum() for key in keys)


def _ended_count(cluster: BreakableCluster) -> int:
    return int(
        cluster.database.server.sql("SELECT count(*) FROM execution WHERE ended_at IS NOT NULL", "chaos")
    )


async def _outcomes(cluster: BreakableCluster, executions: Sequence[str]) -> list[str]:
    async with open_reader(cluster.fleet.settings) as reader:
        violations = []
        for each in executions:
            ends = [row.fact for row in await reader.facts(each) if isinstance(row.fact, ExecutionEnded)]
            if [end.status for end in ends] != ["completed"]:
                violations.append(f"{each} ended as {ends}")
        return violations


def measure_rebuild(folder: Path, count: int) -> RebuildResult:
    """Wipe Redis while `count` executions are half way, and measure."""
    with breakable_cluster(folder) as cluster:
        executions = asyncio.run(_start(cluster, count))
        cluster.wait_for(
            lambda: _queue_length(cluster) >= count, "not all executions are half way", TIMEOUT_S
        )
        before = len(read_effects(cluster.ledger))
        cluster.redis.wipe()
        began = time.monotonic()
        cluster.wait_for(lambda: _state_count(cluster) >= count, "not all executions are rebuilt", TIMEOUT_S)
        states = time.monotonic() - began
        cluster.fleet.start("worker", "--queues", f"{UNSERVED_QUEUE},default").wait_ready()
        cluster.wait_for(lambda: _ended_count(cluster) >= count, "not all executions have ended", TIMEOUT_S)
        ended = time.monotonic() - began
        violations = asyncio.run(_outcomes(cluster, executions))
        extra = len(read_effects(cluster.ledger)) - before - count
        if extra:
            violations.append(f"{extra} effects beyond one per execution were made after the wipe")
        return RebuildResult(states, ended, violations)
