"""The `backend` fixture: engines of this process over the embedded stores, Redis or RabbitMQ.

`@backends("embedded", "redis")` runs a test once per backend. With the suffix `-travelling` every token goes through
the queue, also where an engine could run the next node in place.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import PARTITIONS
from rune.bootstrap import running_engine
from rune.core.execution.fact import NodeSuspended
from rune.core.execution.stored_value import Inline
from rune.core.format import required_format
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry, standard_registry
from rune.ports.journal import ExecutionRecord
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.settings import Settings
from rune.testing.harness import Harness, Run, harness, run_document
from tests.support.services.databases import dsn_of, ready
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import redis_server
from tests.support.waiting import MIN_PAUSE_S, until
from tests.support.workflows import Fields

UNSERVED_QUEUE = "later"
"""A queue that an engine serves only if a test names it: its tokens stay unclaimed until then."""

NODES = ("tests.simulation.effect_nodes", "tests.support.ledger_nodes", "tests.support.process_nodes")
"""The node types of tests, for processes."""

QUEUE_TIMEOUT_S = 90.0
_prefixes = count(1)


def stores(folder: Path, url: str = "") -> Settings:
    """Return settings for an unused database and an unused key prefix in Redis, on the shared server or that of a URL.
    Not to be called in an event loop."""
    ready()
    url = url or redis_server().url
    return Settings(
        home=str(folder),
        journal=dsn_of(folder),
        state=url,
        queue=url,
        prefix=f"fleet{os.getpid()}-{next(_prefixes)}",
        nodes=NODES,
        http_allow=("127.0.0.1",),
    )


def _new_stores() -> Settings:
    return stores(Path(tempfile.mkdtemp(prefix="rune-backend-")))


@cache
def _shared_stores() -> Settings:
    return _new_stores()


@asynccontextmanager
async def open_engines(
    settings: Settings,
    *,
    count: int = 1,
    registry: Registry | None = None,
    queues: tuple[str, ...] = ("default",),
    roles: frozenset[str] = frozenset({"worker", "scheduler"}),
    **more: Any,
) -> AsyncIterator[Harness]:
    """Open `count` engines over the same stores and yield the harness of the first."""
    given = replace(settings, nodes=(), queues=queues, grace=1.0, **more)
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                running_engine(given, registry=registry or standard_registry(), roles=roles)
            )
            for _ in range(count)
        ]
        yield Harness(engines[0], None)


class Backend(ABC):
    """Where the engines of a test keep their state."""

    settings: Settings

    @abstractmethod
    def run(self, document: Fields, payload: Any = None, **options: Any) -> Fields:
        """Run a document to its end and return the run document; waits take no time."""

    @abstractmethod
    def open(self, **options: Any) -> AbstractAsyncContextManager[Harness]:
        """Open an engine; opened again, it resumes from the same stores."""


class EmbeddedBackend(Backend):
    """One engine over SQLite files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = Settings(home=str(folder), durability="relaxed")

    def run(self, document: Fields, payload: Any = None, **options: Any) -> Fields:
        return run_document(document, payload, **options)

    def open(self, **options: Any) -> AbstractAsyncContextManager[Harness]:
        return harness(self._folder, **options)


class ClusterBackend(Backend):
    """Engines over PostgreSQL, Redis and, if a broker URL is given, RabbitMQ."""

    def __init__(self, *, in_place: bool, queue: str | None = None) -> None:
        self._in_place = in_place
        self._queue = queue

    @cached_property
    def settings(self) -> Settings:  # type: ignore[override]
        """Stores that no other test uses."""
        made = _new_stores()
        return made if self._queue is None else replace(made, queue=self._queue)

    def run(
        self,
        document: Fields,
        payload: Any = None,
        *,
        registry: Registry | None = None,
        fake_time: bool = True,
        **options: Any,
    ) -> Fields:
        # Runs over Redis share a database: creating one costs more than most runs.
        settings = _shared_stores() if self._queue is None else self.settings

        async def go() -> Fields:
            given = {"in_place": self._in_place, **options}
            async with open_engines(settings, count=2, registry=registry, **given) as engine:
                return await engine.run(document, payload, fake_time=fake_time)

        return asyncio.run(go())

    def open(self, **options: Any) -> AbstractAsyncContextManager[Harness]:
        return open_engines(self.settings, **{"in_place": self._in_place, **options})

    async def queue_length(self, queue: str = UNSERVED_QUEUE) -> int:
        """Count the entries of a queue in Redis."""
        streams = [
            f"{self.settings.prefix}:{{p{part:02d}}}:stream:{queue}:{lane}"
            for part in range(PARTITIONS)
            for lane in ("high", "normal", "low")
        ]
        return sum([int(await redis_command("XLEN", each)) for each in streams])

    async def wait_for_queue_length(self, count: int, queue: str = UNSERVED_QUEUE) -> None:
        async def reached() -> bool:
            return await self.queue_length(queue) == count

        await until(reached, f"{queue} has {count} entries", QUEUE_TIMEOUT_S)


def backends(*names: str) -> pytest.MarkDecorator:
    """Run a test on these backends, e.g. `embedded`, `redis`, `rabbitmq-travelling`."""
    return pytest.mark.parametrize("backend", names, indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """The backend that the test's parameter names."""
    name, _, variant = request.param.partition("-")
    if name == "embedded":
        yield EmbeddedBackend(tmp_path)
        return
    ready()
    with ExitStack() as stack:
        queue = None
        if name == "rabbitmq":
            queue = broker().url(stack.enter_context(broker().vhost()))
        yield ClusterBackend(in_place=variant != "travelling", queue=queue)


async def redis_command(*words: str | int) -> Any:
    """Send a command to the Redis server of this process."""
    client = Client(redis_server().url)
    try:
        return await client.call(*words)
    finally:
        await client.close()


async def flush_redis() -> None:
    """Delete everything that Redis holds."""
    await redis_command("FLUSHALL")


async def end_status(engine: Harness, execution: str) -> str:
    """Wait for the end of an execution that another engine may have started, and return its status."""
    async with asyncio.timeout(60):
        return (await (await engine.engine.wait_for(execution))).status


async def until_suspended(run: Run, count: int = 1, patience: float = 90.0) -> None:
    """Wait until `count` waits of a run are journaled."""

    async def suspended() -> bool:
        return sum(isinstance(row.fact, NodeSuspended) for row in await run.facts()) >= count

    # Polled often: a test may have to act before the first of them is due.
    await until(suspended, f"{count} nodes wait", patience, max_pause=MIN_PAUSE_S)


async def accept_unopened(engine: Harness, plan: Plan, input: bytes = b"{}") -> ExecutionRecord:
    """Write the row of an execution without opening it."""
    stores = engine.engine.backend
    await engine.engine.launcher._save_definition(plan)
    row = ExecutionRecord(
        id=new_execution_id(),
        workflow="hazard",
        hash=plan.hash,
        at=stores.clock.now(),
        input=Inline(input),
        format=required_format(plan.definition),
    )
    return await stores.journal.accept(row)
