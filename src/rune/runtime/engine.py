"""The engine: launcher, worker, scheduler and their common parts in one process, over whatever backend it is given."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from rune.core.fact import End
from rune.core.plan import Plan
from rune.nodes.registry import Registry
from rune.nodes.world import World
from rune.ports.journal import Accepted
from rune.ports.retention import Rule
from rune.runtime.attempt import Attempt
from rune.runtime.backend import Admission, Backend
from rune.runtime.books import Books
from rune.runtime.children import Children
from rune.runtime.clock import SystemClock
from rune.runtime.completions import Completions
from rune.runtime.desk import Desk
from rune.runtime.endings import Endings
from rune.runtime.janitor import Janitor
from rune.runtime.launcher import Launcher, new_execution_id
from rune.runtime.leases import Leases
from rune.runtime.planbook import Planbook
from rune.runtime.reporter import Told
from rune.runtime.scheduler import Scheduler
from rune.runtime.signals import Signals
from rune.runtime.worker import Worker

SLOTS = 256
GRACE = 30.0


class Engine:
    """One process that accepts, runs and ends executions."""

    def __init__(
        self,
        backend: Backend,
        plans: Planbook,
        registry: Registry,
        *,
        in_place: bool = True,
        slots: int = SLOTS,
        admission: Admission | None = None,
        world: World | None = None,
        told: Told | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        self.backend = backend
        self.plans = plans
        self.registry = registry
        self.completions = Completions()
        self._world = world or World()
        books = Books(backend.journal, backend.blob, plans, backend.clock)
        leases = Leases(backend.state)
        endings = Endings(backend.journal, backend.state, books, self.completions)
        self.launcher = Launcher(
            backend.journal, backend.state, backend.queue, plans, books, endings, backend.clock, admission
        )
        signals = Signals(backend.journal, backend.state, backend.queue, books)
        children = Children(
            backend.journal, backend.blob, backend.library, plans, books, self.launcher, signals, endings
        )
        endings.then(children.ended)
        self.desk = Desk(backend, plans, self.launcher, signals, endings)
        attempt = Attempt(
            f"{os.getpid()}",
            backend.journal,
            backend.state,
            backend.queue,
            books,
            registry,
            endings,
            leases,
            children,
            in_place=in_place,
            world=self._world,
            told=told,
        )
        # A clock of its own: a wake that is meant for the scheduler would be lost on it.
        self._janitor = Janitor(backend.retention, rules, SystemClock())
        self._worker = Worker(attempt, endings, backend.queue, backend.clock, slots)
        self._scheduler = Scheduler(backend.state, backend.queue, endings, leases, children, backend.clock)

    @property
    def busy(self) -> int:
        """How many deliveries are in somebody's hands."""
        return self._worker.busy

    @asynccontextmanager
    async def running(self, *, grace: float = GRACE, working: bool = True) -> AsyncIterator[Engine]:
        """Work while the block runs; then take nothing more, finish what runs, and stop. One that does not work only
        writes down what is asked for."""
        services: list[asyncio.Task[None]] = []
        if working:
            running = (self._worker.run(), self._scheduler.run(), self._janitor.run())
            services = [asyncio.create_task(each) for each in running]
        try:
            yield self
        finally:
            await self._worker.drain(grace)
            for service in services:
                service.cancel()
            for service in services:
                with suppress(asyncio.CancelledError):
                    await service
            await self._world.close()

    async def start(
        self, plan: Plan, input: bytes, **options: object
    ) -> tuple[Accepted, asyncio.Future[End]]:
        """Start an execution and expect its end."""
        execution = new_execution_id()
        ending = self.completions.expect(execution)
        accepted = await self.launcher.start(plan, input, execution=execution, **options)  # type: ignore[arg-type]
        if accepted.id == execution:
            return accepted, ending
        return accepted, await self.expect(accepted.id)  # its key was used before

    async def expect(self, execution: str) -> asyncio.Future[End]:
        """The end of an execution, now or later."""
        future = self.completions.expect(execution)
        end = await self.backend.journal.end(execution)
        if end is not None:
            self.completions.announce(execution, end)
        return future
