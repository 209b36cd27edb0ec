"""The components of an engine and the services over them, built once per process."""

from __future__ import annotations

import msgspec

from rune.runtime.backend import Backend
from rune.runtime.lifecycle.children import Children
from rune.runtime.lifecycle.finisher import (
    CompletionWaiters,
    Finisher,
    OutboxMarker,
    ParentReporter,
    SignalDelivery,
)
from rune.runtime.lifecycle.launcher import Launcher
from rune.runtime.live import LiveFollower, RunningNodes
from rune.runtime.messaging.completion_publisher import CompletionPublisher, ExternalExecutor
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.access import MAX_WAITING, AccessService, AuditLog, Limiter, LimitService
from rune.runtime.services.bulk import BulkService
from rune.runtime.services.credentials import CredentialService
from rune.runtime.services.dead_letters import DeadLetterService, DeadMessageService
from rune.runtime.services.executions import ExecutionService
from rune.runtime.services.triggers import TriggerService
from rune.runtime.services.workers import DrainControl, WorkerService
from rune.runtime.services.workflows import WorkflowService
from rune.runtime.values import ExecutionDataCache
from rune.runtime.worker.attempt import AttemptLogs, Leases
from rune.telemetry.counters import Instrumentation


class Services(msgspec.Struct):
    """The operations that the API, the commands and other processes call."""

    executions: ExecutionService
    workflows: WorkflowService
    dead_letters: DeadLetterService
    dead_messages: DeadMessageService
    triggers: TriggerService
    credentials: CredentialService
    access: AccessService
    limits: LimitService
    bulk: BulkService
    workers: WorkerService
    local: bool = True
    """Whether this process runs the operations itself, rather than the owner of the database or a server."""


class EngineComponents:
    """Everything that worker, scheduler and services share, over one backend."""

    def __init__(
        self,
        backend: Backend,
        plans: PlanCache,
        instrumentation: Instrumentation,
        max_waiting: int = MAX_WAITING,
        data_cache: ExecutionDataCache | None = None,
    ) -> None:
        self.instrumentation = instrumentation
        journal, state, queue = backend.journal, backend.state, backend.queue
        self.completion_waiters = CompletionWaiters()
        self.outbox_marker = OutboxMarker(backend.outbox)
        if data_cache is None:  # one without executions is falsy
            data_cache = ExecutionDataCache(journal, backend.blob, plans, backend.clock)
        self.data_cache = data_cache
        self.leases = Leases(state)
        self.drain_control = DrainControl(queue)
        self.running = RunningNodes(instrumentation.worker)
        self.attempt_logs = AttemptLogs(backend.blob, self.running)
        self.live = LiveFollower(self.running, backend.live)
        self.signals = SignalDelivery(journal, state, queue, self.data_cache)
        self.completion_publisher: CompletionPublisher | None = None
        self.external_executor: ExternalExecutor | None = None
        if backend.events is not None:
            if backend.completions:
                self.completion_publisher = CompletionPublisher(
                    backend.events, journal, self.data_cache, self.outbox_marker
                )
            self.external_executor = ExternalExecutor(backend.events, backend.clock)
        self.finisher = Finisher(
            journal,
            state,
            self.data_cache,
            self.completion_waiters,
            self.outbox_marker,
            instrumentation,
            ParentReporter(journal, backend.blob, self.signals),
            self.completion_publisher,
        )
        self.launcher = Launcher(
            backend,
            plans,
            self.data_cache,
            self.finisher,
            self.outbox_marker,
            instrumentation,
            self.external_executor,
        )
        self.limiter = Limiter(backend, max_waiting)
        self.children = Children(
            journal,
            backend.workflows,
            plans,
            self.data_cache,
            self.launcher,
            self.finisher,
            instrumentation,
        )

    def services(self, backend: Backend, plans: PlanCache) -> Services:
        """Build the services over these components."""
        audit_log = AuditLog(backend.log, backend.clock)
        executions = ExecutionService(
            backend,
            plans,
            self.launcher,
            self.signals,
            self.finisher,
            self.limiter,
            audit_log,
            self.live,
            self.completion_waiters,
        )
        triggers = TriggerService(backend, plans, audit_log)
        limits = LimitService(backend, self.limiter, audit_log)
        dead_letters = DeadLetterService(backend.journal, executions, audit_log)
        return Services(
            executions=executions,
            workflows=WorkflowService(backend.workflows, plans, triggers, backend.clock, audit_log),
            dead_letters=dead_letters,
            dead_messages=DeadMessageService(backend.dead_messages, audit_log),
            triggers=triggers,
            credentials=CredentialService(backend.credentials, backend.grants, backend.clock, audit_log),
            access=AccessService(backend.keys, limits, backend.clock, audit_log),
            limits=limits,
            bulk=BulkService(backend.bulk, executions, dead_letters, backend.clock, audit_log),
            workers=WorkerService(backend.processes, self.drain_control, audit_log),
        )
