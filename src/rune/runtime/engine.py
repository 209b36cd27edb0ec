"""The engine: launcher, worker, scheduler and their components in one process, over any backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rune.core.execution.fact import ExecutionEnded
from rune.core.plan.model import Plan
from rune.nodes.base import Resources
from rune.nodes.registry import Registry
from rune.ports.clock import SystemClock
from rune.ports.journal import ExecutionRecord
from rune.ports.processes import ProcessInfo
from rune.ports.retention import Rule
from rune.ports.workflows import TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.components import EngineComponents
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.lifecycle.completion_waiters import CompletionListener
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import StartOptions, new_execution_id
from rune.runtime.live import LineCallback, ProgressCallback, RunningNodes
from rune.runtime.live_follower import LiveFollower
from rune.runtime.live_reporter import LiveReporter
from rune.runtime.maintenance.cleaner import Cleaner
from rune.runtime.maintenance.expectation_watch import ExpectationWatch
from rune.runtime.maintenance.heartbeat import Heartbeat
from rune.runtime.maintenance.hook_runner import HookRunner
from rune.runtime.maintenance.keepalive import KeepaliveThread
from rune.runtime.maintenance.outbox_relay import OutboxRelay
from rune.runtime.maintenance.quarantine import Quarantine
from rune.runtime.maintenance.scheduler import Scheduler
from rune.runtime.maintenance.trigger_scheduler import TriggerScheduler
from rune.runtime.maintenance.watchdog import LoopWatchdog
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.start_limits import MAX_WAITING
from rune.runtime.services.triggered_starts import TriggeredStarts
from rune.runtime.worker.evaluator import LIMIT_MS, Evaluator
from rune.runtime.worker.executor import Executor
from rune.runtime.worker.worker import Worker
from rune.telemetry.counters import Instrumentation
from rune.telemetry.logs import LOG_CONTEXT

log = logging.getLogger("rune.engine")

ROLES = frozenset({"worker", "scheduler"})
"""What a process may do: run nodes; fire timers, resend lost tokens and clean up."""

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
        resources: Resources,
        instrumentation: Instrumentation,
        in_place: bool = True,
        sticky: bool = False,
        chunk: int = 1,
        slots: int = SLOTS,
        on_progress: ProgressCallback | None = None,
        on_line: LineCallback | None = None,
        rules: Sequence[Rule] = (),
        member: ProcessInfo | None = None,
        max_waiting: int = MAX_WAITING,
        data_cache: ExecutionDataCache | None = None,
        expression_ms: int = LIMIT_MS,
        quarantine: Sequence[str] = (),
        public_url: str = "",
    ) -> None:
        self.backend = backend
        self.plans = plans
        self._public_url = public_url
        self.registry = registry
        self.name = instrumentation.worker
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._changing: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.broken: asyncio.Future[BaseException] = self._loop.create_future()
        self.instrumentation = instrumentation
        self.slots = slots
        self.roles: frozenset[str] = frozenset()
        self._components = components = EngineComponents(
            backend,
            plans,
            instrumentation,
            RunningNodes(instrumentation.worker, on_progress, on_line),
            max_waiting,
            data_cache,
        )
        self.completion_waiters = components.completion_waiters
        self.launcher = components.launcher
        self.services = components.services(backend, plans)
        self.evaluator = Evaluator(expression_ms)
        self.quarantine = Quarantine(self.services.executions.quarantine, backend.block_marks, quarantine)
        executor = Executor(
            self.name,
            backend,
            components,
            registry,
            resources,
            in_place=in_place,
            sticky=sticky,
            chunk=chunk,
            evaluator=self.evaluator,
        )
        self._worker = Worker(executor, components.finisher, backend, slots)
        self._scheduler = Scheduler(
            backend.state,
            backend.queue,
            components.finisher,
            components.leases,
            components.children,
            backend.clock,
            instrumentation,
            backend.journal,
        )
        self.starts = TriggeredStarts(backend.journal, plans, components.launcher, components.limiter)
        # A clock of its own: a wake that is meant for the scheduler would be lost on it.
        self._cleaner = Cleaner(backend.retention, rules, SystemClock())
        self.heartbeat = None
        if backend.processes is not None and member is not None:
            self.heartbeat = Heartbeat(member, lambda: self._worker.busy, self._on_drain, backend.delivered)
        self._keepalive = None
        if backend.keepalive is not None:
            self._keepalive = KeepaliveThread(
                backend.keepalive, components.leases, self.heartbeat, self._report_broken
            )

    @property
    def data_cache(self) -> ExecutionDataCache:
        """The cached data of the executions that this process works on."""
        return self._components.data_cache

    @property
    def finisher(self) -> Finisher:
        """Ends executions."""
        return self._components.finisher

    @property
    def live(self) -> LiveFollower:
        """Follows what runs now, in all workers."""
        return self._components.live

    @property
    def busy(self) -> int:
        """The number of deliveries that are being executed."""
        return self._worker.busy

    @property
    def draining(self) -> bool:
        """Whether the worker was asked to receive no more work."""
        return self._components.drain_control.draining

    def _on_drain(self, draining: bool) -> None:
        """Stop or resume the deliveries, as the registry asks. Called in the thread of the heartbeats."""
        self._loop.call_soon_threadsafe(self._set_draining, draining)

    def _set_draining(self, draining: bool) -> None:
        task = asyncio.ensure_future(self._components.drain_control.set_draining(draining))
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    async def renew_leases(self) -> None:
        """Renew the leases of running nodes now, for a clock that does not run by itself."""
        await self._components.leases.renew()

    def _services(self, roles: frozenset[str]) -> list[Coroutine[Any, Any, None]]:
        found: list[Coroutine[Any, Any, None]] = []
        if "worker" in roles:
            found += [self._worker.run(), self._components.attempt_logs.run()]
            if self.backend.live is not None:
                found.append(LiveReporter(self._components.running, self.backend.live).run())
        if "scheduler" in roles:
            found += [self._scheduler.run(), self._cleaner.run()]
            if self.backend.processes is not None:
                found.append(self.quarantine.run())
            trigger_scheduler = self.trigger_scheduler(self.backend.triggers)
            found += [trigger_scheduler.run(), trigger_scheduler.tidy()]
            found.append(
                HookRunner(
                    self.backend, self.plans, self.launcher, self.instrumentation.counters, self._public_url
                ).run()
            )
            found.append(ExpectationWatch(self.backend).run())
            if self.backend.outbox is not None:
                relay = OutboxRelay(
                    self.backend.outbox,
                    self.backend.journal,
                    self.launcher,
                    self._components.finisher,
                    self._components.completion_publisher,
                )
                found.append(relay.run())
        elif "worker" in roles and self._keepalive is None:
            found.append(self._components.leases.run())
        if self.backend.notifier is not None:
            listener = CompletionListener(
                self.backend.journal, self.completion_waiters, self.backend.notifier, self.data_cache
            )
            found.append(listener.run())
        if self.heartbeat is not None and roles and self._keepalive is None:
            assert self.backend.processes is not None
            found.append(self.heartbeat.run(self.backend.processes))
        return found

    def trigger_scheduler(self, triggers: TriggerStore) -> TriggerScheduler:
        """Return a scheduler that starts executions for due schedules."""
        return TriggerScheduler(
            triggers, self.services.triggers, self.starts, self._components.finisher, self.backend
        )

    def _ended_early(self, service: asyncio.Task[None]) -> None:
        """Report a loop that ended by itself: the process would only seem to work without it."""
        if service.cancelled():
            if not self._stopping:
                self._report_broken(RuntimeError("a background task was cancelled"))
            return
        error = service.exception()
        if error is not None:
            self._report_broken(error)

    def _report_broken(self, error: BaseException) -> None:
        log.critical("a background task of this process failed; the process stops", exc_info=error)
        if not self.broken.done():
            self.broken.set_result(error)

    def raise_if_broken(self) -> None:
        """Raise if a background task has failed: nothing runs executions in this process any more."""
        if self.broken.done():
            raise RuntimeError("a background task of this process failed") from self.broken.result()

    @asynccontextmanager
    async def running(self, *, grace: float = GRACE, roles: frozenset[str] = ROLES) -> AsyncIterator[Engine]:
        """Work while the block runs; then receive nothing more, wait for running nodes, and stop. Without a role the
        engine only records starts and commands."""
        self.roles = roles
        LOG_CONTEXT.set(
            [self.name, "", (), None]
        )  # log lines of tasks created from here on name this process
        async with AsyncExitStack() as stack:
            if self._keepalive is not None and roles:
                await stack.enter_async_context(self._keepalive.running())
            if roles:
                await self.quarantine.begin()
            async with self._serving(grace, roles):
                yield self

    @asynccontextmanager
    async def _serving(self, grace: float, roles: frozenset[str]) -> AsyncIterator[None]:
        services = [asyncio.create_task(each) for each in self._services(roles)]
        for service in services:
            service.add_done_callback(self._ended_early)
        try:
            async with LoopWatchdog(self.instrumentation.counters, on_held=self.quarantine).watching():
                yield
        finally:
            if self.heartbeat is not None:
                self.heartbeat.drain()
            await self._worker.drain(grace)
            self._stopping = True
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)
            if self._components.completion_publisher is not None:
                await self._components.completion_publisher.close()
            await self._components.live.close()
            await self.launcher.close()
            await self._components.finisher.close()
            await self._components.outbox_marker.close()
            self.evaluator.close()
            await self._resources.close()
            await self.instrumentation.close()

    async def start(
        self,
        plan: Plan,
        input: bytes,
        *,
        priority: int | None = None,
        execution: str | None = None,
        **options: Any,
    ) -> tuple[ExecutionRecord, asyncio.Future[ExecutionEnded]]:
        """Start an execution, with a new id unless one is given, and return it with the future of its end."""
        id = execution or new_execution_id()
        ending = self.completion_waiters.wait_for(id)
        record = self.launcher.new_record(
            plan, input, StartOptions(**options), execution=id, priority=priority
        )
        accepted = await self.launcher.start(record, plan, new_id=execution is None, followed=True)
        if accepted.id == id and execution is None:
            return accepted, ending
        return accepted, await self.wait_for(accepted.id)  # its key or id was used before

    async def wait_for(self, execution: str) -> asyncio.Future[ExecutionEnded]:
        """Return the future of the end of an execution."""
        future = self.completion_waiters.wait_for(execution)
        end = await self.backend.journal.end(execution)
        if end is not None:
            self.completion_waiters.notify(execution, end)
        return future
