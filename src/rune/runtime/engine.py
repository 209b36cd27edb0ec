"""The engine: launcher, worker, scheduler and their common parts in one process, over whatever backend it is given."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.core.execution.fact import End
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from rune.nodes.resources import World
from rune.ports.journal import Accepted
from rune.ports.outbox import Herald
from rune.ports.processes import Member
from rune.ports.retention import Rule
from rune.ports.triggers import Triggers
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.components import Parts
from rune.runtime.instrumentation import Witness
from rune.runtime.lifecycle.finisher import Awaiting, Endings
from rune.runtime.lifecycle.launcher import Options, RunsElsewhere, new_execution_id
from rune.runtime.maintenance.cleaner import Janitor
from rune.runtime.maintenance.heartbeat import Heartbeat
from rune.runtime.maintenance.outbox_relay import Relay
from rune.runtime.maintenance.scheduler import Scheduler
from rune.runtime.maintenance.trigger_scheduler import Starts, Ticker
from rune.runtime.plan_cache import Planbook
from rune.runtime.services.executions import Desk
from rune.runtime.services.limits import MAX_WAITING
from rune.runtime.services.triggers import TriggerBook
from rune.runtime.values import Books
from rune.runtime.worker.executor import Attempt
from rune.runtime.worker.node_runner import Told
from rune.runtime.worker.worker import Worker
from rune.telemetry.logs import HERE

log = logging.getLogger("rune.engine")

ROLES = frozenset({"worker", "scheduler"})
"""What a process may do: run nodes; fire timers, send again what was lost, and tidy up."""

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
        world: World,
        witness: Witness,
        in_place: bool = True,
        slots: int = SLOTS,
        told: Told | None = None,
        rules: Sequence[Rule] = (),
        member: Member | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.backend = backend
        self.plans = plans
        self.registry = registry
        self.name = member.name if member is not None else f"{os.getpid()}"
        self._world = world
        self.broken: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.witness = witness
        witness.worker = self.name
        self.slots = slots
        self.roles: frozenset[str] = frozenset()
        self._parts = parts = Parts(backend, plans, witness, max_waiting)
        self.completions = parts.completions
        self.launcher = parts.launcher
        self.desk = Desk(backend, plans, parts.launcher, parts.signals, parts.endings, parts.limiter)
        attempt = Attempt(self.name, backend, parts, registry, world, in_place=in_place, told=told)
        self._worker = Worker(attempt, parts.endings, backend, slots)
        self._scheduler = Scheduler(
            backend.state, backend.queue, parts.endings, parts.leases, parts.children, backend.clock, witness
        )
        self.starts = Starts(backend.journal, plans, parts.launcher, parts.limiter)
        # A clock of its own: a wake that is meant for the scheduler would be lost on it.
        self._janitor = Janitor(backend.retention, rules, SystemClock())
        self.heartbeat = None
        if backend.fleet is not None and member is not None:
            self.heartbeat = Heartbeat(backend.fleet, member, lambda: self._worker.busy)

    @property
    def books(self) -> Books:
        """The books of the executions that are worked on."""
        return self._parts.books

    @property
    def endings(self) -> Endings:
        """Who ends executions."""
        return self._parts.endings

    def tell(self, herald: Herald) -> None:
        """Let a herald send a message of each end."""
        self._parts.tell(herald, self.backend.journal)

    @property
    def busy(self) -> int:
        """How many deliveries are in somebody's hands."""
        return self._worker.busy

    def _services(self, roles: frozenset[str]) -> list[Coroutine[Any, Any, None]]:
        found: list[Coroutine[Any, Any, None]] = []
        if "worker" in roles:
            found.append(self._worker.run())
        if "scheduler" in roles:
            found += [self._scheduler.run(), self._janitor.run()]
            ticker = self.ticker(self.backend.triggers)
            found += [ticker.run(), ticker.tidy()]
            if self.backend.outbox is not None:
                relay = Relay(
                    self.backend.outbox,
                    self.backend.journal,
                    self.launcher,
                    self._parts.endings,
                    self._parts.completing,
                )
                found.append(relay.run())
        elif "worker" in roles:
            found.append(self._parts.leases.run())
        if self.backend.news is not None:
            found.append(Awaiting(self.backend.journal, self.completions, self.backend.news).run())
        if self.heartbeat is not None and roles:
            found.append(self.heartbeat.run())
        return found

    def ticker(self, triggers: Triggers) -> Ticker:
        """Who starts what schedules are due."""
        book = TriggerBook(self.backend, self.plans)
        return Ticker(triggers, book, self.starts, self._parts.endings, self.backend)

    def _ended_early(self, service: asyncio.Task[None]) -> None:
        """None of them ends by itself: one that does leaves a process that only seems to work."""
        error = None if service.cancelled() else service.exception()
        if error is not None:
            log.critical("a service of this process has broken off; it cannot go on", exc_info=error)
            if not self.broken.done():
                self.broken.set_result(error)

    @asynccontextmanager
    async def running(self, *, grace: float = GRACE, roles: frozenset[str] = ROLES) -> AsyncIterator[Engine]:
        """Work while the block runs; then take nothing more, finish what runs, and stop. One without a role only
        writes down what is asked for."""
        self.roles = roles
        HERE.set([self.name, "", (), None])  # what is begun from here on says whose it is
        services = [asyncio.create_task(each) for each in self._services(roles)]
        for service in services:
            service.add_done_callback(self._ended_early)
        try:
            yield self
        finally:
            if self.heartbeat is not None:
                self.heartbeat.drain()
            await self._worker.drain(grace)
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)
            if self._parts.completing is not None:
                await self._parts.completing.close()
            await self._parts.notices.close()
            await self._world.close()
            await self.witness.close()

    async def start(
        self, plan: Plan, input: bytes, *, priority: int | None = None, **options: Any
    ) -> tuple[Accepted, asyncio.Future[End]]:
        """Start an execution and expect its end."""
        if self.launcher.leaves(plan):
            raise RunsElsewhere(f"{plan.definition.id} is run by another engine; `rune start` hands it over")
        execution = new_execution_id()
        ending = self.completions.expect(execution)
        accepted = await self.launcher.start(
            plan, input, Options(**options), priority=priority, execution=execution
        )
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
