"""Where the jobs of `rune bench` run: an engine of this process, with its API if a job calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.bootstrap import open_reader, running_engine
from rune.bootstrap.http import serve
from rune.cli.bench.jobs import Document
from rune.cli.bench.workloads import compiled, completed
from rune.core.plan.model import Plan
from rune.runtime.engine import Engine
from rune.settings import Settings

NODES = ("rune.cli.bench.nodes",)


class EnginePlace:
    """An engine that runs the documents of jobs. Each is compiled and deployed once."""

    def __init__(self, engine: Engine, url: str = "") -> None:
        self.engine = engine
        self.url = url
        self._plans: dict[bytes, Plan] = {}
        self._deployed: set[bytes] = set()

    def _plan(self, document: Document) -> Plan:
        key = msgspec.json.encode(document)
        if key not in self._plans:
            self._plans[key] = compiled(document, self.engine.registry.catalogue)
        return self._plans[key]

    async def complete(self, document: Document, inputs: Sequence[Any], concurrency: int) -> list[float]:
        payloads = [msgspec.json.encode(each) for each in inputs]
        return await completed(self.engine, self._plan(document), payloads, concurrency)

    async def suspend(self, document: Document, inputs: Sequence[Any], concurrency: int) -> None:
        plan = self._plan(document)
        launcher = self.engine.launcher
        waiting = iter([msgspec.json.encode(each) for each in inputs])

        async def lane() -> None:
            for payload in waiting:
                await launcher.start(launcher.new_record(plan, payload), plan, new_id=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(inputs))):
                group.create_task(lane())
        # The state has no notification for this, so it is polled.
        while self.engine.backend.state.active():  # type: ignore[attr-defined]
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(0.005)

    async def deploy(self, document: Document) -> None:
        definition = msgspec.json.encode(document)
        if definition not in self._deployed:
            await self.engine.services.workflows.deploy(definition)
            self._deployed.add(definition)

    async def count_results(self) -> int:
        """Return the number of results in the database file."""
        return int(await self.engine.backend.journal.count_results())  # type: ignore[attr-defined]


@asynccontextmanager
async def open_place(settings: Settings, *, serves: bool) -> AsyncIterator[EnginePlace]:
    """Run an engine in the folder of the settings, and its API on a free port if asked for."""
    async with running_engine(settings) as engine:
        if not serves:
            yield EnginePlace(engine)
            return
        async with serving(settings, engine) as url:
            yield EnginePlace(engine, url)


@asynccontextmanager
async def serving(settings: Settings, engine: Engine) -> AsyncIterator[str]:
    """Serve the API of an engine on a free port; yield its URL."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()
    ready: asyncio.Future[str] = loop.create_future()
    async with open_reader(settings) as reader:
        server = asyncio.create_task(
            serve(settings, engine, reader, "127.0.0.1", 0, stop=stop, ready=ready.set_result)
        )
        try:
            yield await ready
        finally:
            stop.set_result(None)
            await server
