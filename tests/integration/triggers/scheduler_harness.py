"""Engine with a settable clock and schedulers that run on demand."""

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
from rune.core.execution.stored_value import Inline
from rune.ports.queries import Summary
from rune.ports.workflows import Trigger, TriggerStore
from rune.runtime.engine import Engine
from rune.runtime.maintenance.trigger_scheduler import TriggerScheduler
from rune.settings import Settings
from rune.testing.harness import VirtualClock

DEADLINE = 120.0
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class SettableClock(VirtualClock):
    """A virtual clock that can also be set back."""

    def set(self, moment: int) -> None:
        self._now = moment


def moment(text: str, zone: str = "UTC") -> int:
    """Return epoch milliseconds of a wall clock time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


class SchedulerHarness:
    """An engine, its clock and its trigger schedulers."""

    def __init__(self, engine: Engine, clock: SettableClock, settings: Settings) -> None:
        self.engine = engine
        self.clock = clock
        self.services = engine.services
        self.settings = settings
        found = engine.backend.triggers
        assert found is not None
        self.triggers: TriggerStore = found
        self.scheduler = self.new_scheduler()

    def new_scheduler(self) -> TriggerScheduler:
        """Return another scheduler."""
        return self.engine.trigger_scheduler(self.triggers)

    async def deploy(self, document: dict[str, Any], alias: str | None = None) -> None:
        await self.services.workflows.deploy(msgspec.json.encode(document), alias=alias)

    async def trigger(self, workflow: str = "report") -> Trigger:
        (found,) = await self.triggers.list(workflow)
        return found

    async def run_at(self, when: int) -> list[str]:
        """Set the clock and run the scheduler; return the times of the started ticks."""
        before = {each.id for each in await self.executions()}
        self.clock.set(when)
        await self.scheduler.turn()
        return await self._times([each for each in await self.executions() if each.id not in before])

    async def run_through(self, begin: int, length: int) -> None:
        """Advance the clock in steps of 15 minutes."""
        for when in range(begin, begin + length, 15 * MINUTE):
            self.clock.set(when)
            await self.scheduler.turn()

    async def started_times(self) -> list[str]:
        """Return the scheduled times of all executions, in the order of their start."""
        return await self._times(await self.executions())

    async def _times(self, found: list[Summary]) -> list[str]:
        times = []
        for each in reversed(found):
            accepted = await self.engine.backend.journal.accepted(each.id)
            assert accepted is not None
            assert isinstance(accepted.input, Inline)
            times.append(str(msgspec.json.decode(accepted.input.data)["scheduled_at"]))
        return times

    async def executions(self) -> list[Summary]:
        async with open_reader(self.settings) as reader:
            return await reader.executions(limit=1_000)

    async def end(self, execution: str) -> None:
        """Signal a waiting execution and wait for its end."""
        await self.services.executions.signal(execution, "go")
        await (await self.engine.wait_for(execution))


@asynccontextmanager
async def open_harness(
    folder: Path,
    when: int,
    *,
    settings: Settings | None = None,
    roles: frozenset[str] = frozenset({"worker"}),
) -> AsyncIterator[SchedulerHarness]:
    """Run the engine during the block; schedulers run on demand."""
    made = settings or Settings(home=str(folder), durability="relaxed")
    clock = SettableClock(when)
    async with running_engine(made, clock=clock, roles=roles) as engine:
        yield SchedulerHarness(engine, clock, made)


def run(folder: Path, when: int, work: Callable[[SchedulerHarness], Awaitable[None]], **options: Any) -> None:
    """Run the test with a harness."""

    async def within_timeout() -> None:
        async with asyncio.timeout(DEADLINE), open_harness(folder, when, **options) as made:
            await work(made)

    asyncio.run(within_timeout())
