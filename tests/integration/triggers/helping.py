"""An engine whose clock is told the time, with schedules that are looked at when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from rune.bootstrap import open_reader, running_engine
from rune.ports.queries import Summary
from rune.ports.triggers import Trigger, TriggerStore
from rune.runtime.engine import Engine
from rune.runtime.maintenance.trigger_scheduler import TriggerScheduler
from rune.settings import Settings
from rune.testing.clock import VirtualClock

DEADLINE = 120.0
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class AnyClock(VirtualClock):
    """A clock that may also be put back."""

    def put(self, moment: int) -> None:
        self._now = moment


def moment(text: str, zone: str = "UTC") -> int:
    """Epoch ms of a wall clock."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def scheduled(*, id: str = "report", waits: bool = False, **parameters: Any) -> dict[str, Any]:
    """A workflow that a schedule starts; `waits`: it goes on when it is told to."""
    nodes: list[dict[str, Any]] = [{"id": "clock", "type": "schedule", "parameters": parameters}]
    edges = []
    if waits:
        nodes.append({"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}})
        edges.append({"src": "clock", "dst": "w"})
    nodes.append({"id": "out", "type": "output", "parameters": {"value": "{{ $trigger.scheduled_at }}"}})
    edges.append({"src": nodes[-2]["id"], "dst": "out"})
    return {"id": id, "nodes": nodes, "edges": edges}


def hooked(*, id: str = "orders", credentials: str | None = None, **parameters: Any) -> dict[str, Any]:
    """A workflow that a request starts."""
    node: dict[str, Any] = {"id": "in", "type": "webhook", "parameters": parameters}
    if credentials is not None:
        node["credentials"] = {"name": credentials}
    return {
        "id": id,
        "nodes": [node, {"id": "out", "type": "output", "parameters": {"value": "{{ $trigger.body }}"}}],
        "edges": [{"src": "in", "dst": "out"}],
    }


class Clockwork:
    """An engine, its clock, and those who look at schedules."""

    def __init__(self, engine: Engine, clock: AnyClock, settings: Settings) -> None:
        self.engine = engine
        self.clock = clock
        self.services = engine.services
        self.settings = settings
        found = engine.backend.triggers
        assert found is not None
        self.triggers: TriggerStore = found
        self.ticker = self.another()

    def another(self) -> TriggerScheduler:
        """One more scheduler."""
        return self.engine.trigger_scheduler(self.triggers)

    async def deploy(self, document: dict[str, Any], alias: str | None = None) -> None:
        await self.services.workflows.deploy(msgspec.json.encode(document), alias=alias)

    async def one(self, workflow: str = "report") -> Trigger:
        (found,) = await self.triggers.list(workflow)
        return found

    async def at(self, when: int) -> list[str]:
        """Let it be a moment; what was started then."""
        before = {each.id for each in await self.executions()}
        self.clock.put(when)
        await self.ticker.turn()
        return await self._times([each for each in await self.executions() if each.id not in before])

    async def pass_through(self, begin: int, length: int) -> None:
        """Let time pass, a quarter of an hour at once."""
        for when in range(begin, begin + length, 15 * MINUTE):
            self.clock.put(when)
            await self.ticker.turn()

    async def started(self) -> list[str]:
        """The times for which executions were started, in the order they were started."""
        return await self._times(await self.executions())

    async def _times(self, found: list[Summary]) -> list[str]:
        times = []
        for each in reversed(found):
            accepted = await self.engine.backend.journal.accepted(each.id)
            assert accepted is not None
            times.append(str(msgspec.json.decode(accepted.input)["scheduled_at"]))
        return times

    async def executions(self) -> list[Summary]:
        async with open_reader(self.settings) as look:
            return await look.executions(limit=1_000)

    async def end(self, execution: str) -> None:
        """Let an execution that waits go on, and see it end."""
        await self.services.executions.signal(execution, "go")
        await (await self.engine.wait_for(execution))


@asynccontextmanager
async def clockwork(
    folder: Path,
    when: int,
    *,
    settings: Settings | None = None,
    roles: frozenset[str] = frozenset({"worker"}),
) -> AsyncIterator[Clockwork]:
    """While the block runs. What is due is looked at only when a test asks for it."""
    made = settings or Settings(home=str(folder), durability="relaxed")
    clock = AnyClock(when)
    async with running_engine(made, clock=clock, roles=roles) as engine:
        yield Clockwork(engine, clock, made)


def run(folder: Path, when: int, work: Callable[[Clockwork], Awaitable[None]], **options: Any) -> None:
    """Do something with one."""

    async def go() -> None:
        async with asyncio.timeout(DEADLINE), clockwork(folder, when, **options) as made:
            await work(made)

    asyncio.run(go())
