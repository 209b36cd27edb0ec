"""The hazards' workflows on a cluster: engines of this process over a real PostgreSQL and a real Redis."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rune.adapters.redis.client import Client
from rune.bootstrap import running_engine
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry, standard_registry
from rune.ports.journal import FORMAT, ExecutionRecord
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.settings import Settings
from rune.testing.harness import Harness
from tests.hazards.building import Fields
from tests.integration.cluster.standing import stores
from tests.support.services.redis_server import redis_server

LATER = "later"
"""A queue that is read only by who says so: what waits there is in nobody's hands."""


@cache
def _shared() -> Settings:
    return stores(Path(tempfile.mkdtemp(prefix="rune-hazards-")))


def fresh() -> Settings:
    """Stores that nobody has used. Not from inside of a loop."""
    return replace(stores(Path(tempfile.mkdtemp(prefix="rune-hazards-"))), nodes=())


@asynccontextmanager
async def engines(
    settings: Settings,
    *,
    count: int = 1,
    registry: Registry | None = None,
    queues: tuple[str, ...] = ("default",),
    in_place: bool = True,
    roles: frozenset[str] = frozenset({"worker", "scheduler"}),
    **more: Any,
) -> AsyncIterator[Harness]:
    """So many engines beside each other; the first is the one to ask."""
    asked = replace(settings, nodes=(), queues=queues, in_place=in_place, grace=1.0, **more)
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(
                running_engine(asked, registry=registry or standard_registry(), roles=roles)
            )
            for _ in range(count)
        ]
        yield Harness(found[0], None)


def ran(
    document: Fields,
    payload: Any = None,
    *,
    on: Settings | None = None,
    registry: Registry | None = None,
    fake_time: bool = True,
    **more: Any,
) -> Fields:
    """The document of a run to its end by two engines; waits take no time."""

    async def go() -> Fields:
        async with engines(settings, count=2, registry=registry, **more) as cluster:
            return await cluster.run(document, payload, fake_time=fake_time)

    settings = on or _shared()
    return asyncio.run(go())


async def accepted(cluster: Harness, plan: Plan, input: bytes = b"{}") -> ExecutionRecord:
    """The row of an execution that nobody has opened."""
    backend = cluster.engine.backend
    await cluster.engine.launcher._save_definition(plan)
    row = ExecutionRecord(
        id=new_execution_id(),
        workflow="hazard",
        hash=plan.hash,
        at=backend.clock.now(),
        input=input,
        format=FORMAT,
    )
    return await backend.journal.accept(row)


async def ask(*words: str | int) -> Any:
    """A command for the server that all of these tests share."""
    client = Client(redis_server().url)
    try:
        return await client.call(*words)
    finally:
        await client.close()


async def wipe() -> None:
    """Everything in Redis is gone."""
    await ask("FLUSHALL")


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 90.0) -> None:
    """Until something holds."""
    async with asyncio.timeout(seconds):
        while not await holds():  # what is waited for happens in servers and tells nobody
            await _moment()


async def _moment() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()


async def status_of(cluster: Harness, execution: str) -> str:
    """How an execution ended that may have been started elsewhere."""
    async with asyncio.timeout(60):
        return (await (await cluster.engine.wait_for(execution))).status


async def queued(settings: Settings, queue: str = LATER) -> int:
    """How many entries wait in a queue."""
    lanes = [
        f"{settings.prefix}:{{p{part:02d}}}:stream:{queue}:{lane}"
        for part in range(settings.partitions)
        for lane in ("high", "normal", "low")
    ]
    return sum([int(await ask("XLEN", each)) for each in lanes])


async def until_queued(settings: Settings, count: int, queue: str = LATER) -> None:
    """Until so many entries wait in a queue."""

    async def so_many() -> bool:
        return await queued(settings, queue) == count

    await until(so_many)
