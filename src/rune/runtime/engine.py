"""The engine: launcher, worker, scheduler and their common parts in one process, over whatever backend it is given."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.core.execution.fact import ExecutionEnded
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from rune.nodes.resources import Resources
from rune.ports.journal import ExecutionRecord
from rune.ports.outbox import EventPublisher
from rune.ports.processes import ProcessInfo
from rune.ports.retention import Rule
from rune.ports.triggers import TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.components import EngineComponents
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.finisher import CompletionListener, Finisher
from rune.runtime.lifecycle.launcher import ExternalExecutorError, StartOptions, new_execution_id
from rune.runtime.maintenance.cleaner import Cleaner
from rune.runtime.maintenance.heartbeat import Heartbeat
from rune.runtime.maintenance.outbox_relay import OutboxRelay
from rune.runtime.maintenance.scheduler import Scheduler
from rune.runtime.maintenance.trigger_scheduler import TriggeredStarts, TriggerScheduler
from rune.runtime.maintenance.watchdog import LoopWatchdog
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.limits import MAX_WAITING
from rune.runtime.values import ExecutionDataCache
from rune.runtime.worker.evaluator import LIMIT_MS, Evaluator
from rune.runtime.worker.executor import Executor
from rune.runtime.worker.node_runner import ProgressCallback
from rune.runtime.worker.worker import Worker
from rune.telemetry.logs import LOG_CONTEXT

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
        plans: PlanCache,
        registry: Registry,
        *,
        world: Resources,
        witness: Instrumentation,
        in_place: bool = True,
        slots: int = SLOTS,
        told: ProgressCallback | None = None,
        rules: Sequence[Rule] = (),
        member: ProcessInfo | None = None,
        max_waiting: int = MAX_WAITING,
        data_cache: ExecutionDataCache | None = None,
        expression_ms: int = LIMIT_MS,
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
        self._parts = parts = EngineComponents(backend, plans, witness, max_waiting, data_cache)
        self.completions = parts.completions
        self.launcher = parts.launcher
        self.services = parts.services(backend, plans)
        self.evaluator = Evaluator(expression_ms)
        attempt = Executor(
            self.name,
            backend,
            parts,
            registry,
            world,
            in_place=in_place,
            told=told,
            evaluator=self.evaluator,
        )
        self._worker = Worker(attempt, parts.endings, backend, slots)
        self._scheduler = Scheduler(
            backend.state, backend.queue, parts.endings, parts.leases, parts.children, backend.clock, witness
        )
        self.starts = TriggeredStarts(backend.journal, plans, parts.launcher, parts.limiter)
        # A clock of its own: a wake that is meant for the scheduler would be lost on it.
        self._janitor = Cleaner(backend.retention, rules, SystemClock())
        self.heartbeat = None
        if backend.fleet is not None and member is not None:
            self.heartbeat = Heartbeat(backend.fleet, member, lambda: self._worker.busy)

    @property
    def data_cache(self) -> ExecutionDataCache:
        """The books of the executions that are worked on."""
        return self._parts.books

    @property
    def finisher(self) -> Finisher:
        """Who ends executions."""
        return self._parts.endings

    def notify(self, herald: EventPublisher) -> None:
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
            ticker = self.trigger_scheduler(self.backend.triggers)
            found += [ticker.run(), ticker.tidy()]
            if self.backend.outbox is not None:
                relay = OutboxRelay(
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
            found.append(CompletionListener(self.backend.journal, self.completions, self.backend.news).run())
        if self.heartbeat is not None and roles:
            found.append(self.heartbeat.run())
        return found

    def trigger_scheduler(self, triggers: TriggerStore) -> TriggerScheduler:
        """Who starts what schedules are due."""
        return TriggerScheduler(
            triggers, self.services.triggers, self.starts, self._parts.endings, self.backend
        )

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
        LOG_CONTEXT.set([self.name, "", (), None])  # what is begun from here on says whose it is
        services = [asyncio.create_task(each) for each in self._services(roles)]
        for service in services:
            service.add_done_callback(self._ended_early)
        try:
            async with LoopWatchdog(self.witness.meter).watching():
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
            self.evaluator.close()
            await self._world.close()
            await self.witness.close()

    async def start(
        self, plan: Plan, input: bytes, *, priority: int | None = None, **options: Any
    ) -> tuple[ExecutionRecord, asyncio.Future[ExecutionEnded]]:
        """Start an execution and expect its end."""
        if self.launcher.leaves(plan):
            raise ExternalExecutorError(
                f"{plan.definition.id} is run by another engine; `rune start` hands it over"
            )
        execution = new_execution_id()
        ending = self.completions.wait_for(execution)
        accepted = await self.launcher.start(
            plan, input, StartOptions(**options), priority=priority, execution=execution
        )
        if accepted.id == execution:
            return accepted, ending
        return accepted, await self.wait_for(accepted.id)  # its key was used before

    async def wait_for(self, execution: str) -> asyncio.Future[ExecutionEnded]:
        """The end of an execution, now or later."""
        future = self.completions.wait_for(execution)
        end = await self.backend.journal.end(execution)
        if end is not None:
            self.completions.notify(execution, end)
        return future
