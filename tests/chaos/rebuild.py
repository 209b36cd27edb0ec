"""How long it takes until every execution that was running is there again after Redis was wiped."""

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
from tests.chaos.effects import made
from tests.chaos.stand import Stand, stand
from tests.hazards.building import Fields, kind, sets, splits, workflow

LATER = "later"
"""A queue that nobody reads until the wipe is over."""

AT_ONCE = 50
PATIENCE = 600.0


class Rebuilt(NamedTuple):
    """Seconds from the wipe until every state was there, and until all had ended once somebody ran them."""

    states: float
    ended: float
    wrong: list[str]


def _document() -> Fields:
    effect = kind("chaos.effect", did="e")
    return workflow(
        "start>a a>s s>e e>i i>g g>c c>out",
        a=effect, s=splits("{{ range(4) }}"), e=effect, i=sets(v="{{ $item }}"), g=kind("aggregator"),
        c={**effect, "queue": LATER}, out=kind("output", value="{{ [x.v for x in $g] }}"),
    )  # fmt: skip


async def _start(broken: Stand, count: int) -> list[str]:
    settings = broken.fleet.settings
    async with running_engine(settings, registry=full_registry(settings.nodes), working=False) as engine:
        plan = compiled(_document(), engine.registry)
        window = asyncio.Semaphore(AT_ONCE)

        async def one() -> str:
            async with window:
                return (await engine.launcher.start(plan, b"{}")).id

        return await asyncio.gather(*(one() for _ in range(count)))


def _queued(broken: Stand) -> int:
    lanes = broken.redis.ask("--scan", "--pattern", f"*:stream:{LATER}:*").split()
    return sum(int(broken.redis.ask("XLEN", each)) for each in lanes)


def _there(broken: Stand) -> int:
    keys = broken.redis.ask("--scan", "--pattern", "*:x:*").split()
    return sum(key.rpartition(":x:")[2].isalnum() for key in keys)


def _ended(broken: Stand) -> int:
    return int(
        broken.database.server.sql("SELECT count(*) FROM execution WHERE ended_at IS NOT NULL", "chaos")
    )


async def _outcomes(broken: Stand, executions: Sequence[str]) -> list[str]:
    async with open_reader(broken.fleet.settings) as look:
        wrong = []
        for each in executions:
            ends = [row.fact for row in await look.facts(each) if isinstance(row.fact, ExecutionEnded)]
            if [end.status for end in ends] != ["completed"]:
                wrong.append(f"{each} ended as {ends}")
        return wrong


def rebuilt(folder: Path, count: int) -> Rebuilt:
    """So many executions in the middle of their work; then the wipe."""
    with stand(folder) as broken:
        executions = asyncio.run(_start(broken, count))
        broken.wait_for(lambda: _queued(broken) >= count, "not all came half way", PATIENCE)
        before = len(made(broken.ledger))
        broken.redis.wipe()
        began = time.monotonic()
        broken.wait_for(lambda: _there(broken) >= count, "not all are there again", PATIENCE)
        states = time.monotonic() - began
        broken.fleet.start("worker", "--queues", f"{LATER},default").wait_ready()
        broken.wait_for(lambda: _ended(broken) >= count, "not all have ended", PATIENCE)
        ended = time.monotonic() - began
        wrong = asyncio.run(_outcomes(broken, executions))
        extra = len(made(broken.ledger)) - before - count
        if extra:
            wrong.append(f"{extra} effects more than one for each were made after the wipe")
        return Rebuilt(states, ended, wrong)
