"""The components of an engine and the services over them, built once per process; and the services of the process that
owns the database file, as other processes call them over its socket.
"""

from __future__ import annotations

from typing import get_type_hints

import msgspec

from rune.codec.rpc import Call, RpcMethods, ServiceProxy, remote
from rune.runtime.backend import Backend
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.lifecycle.children import Children
from rune.runtime.lifecycle.completion_waiters import CompletionWaiters
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher
from rune.runtime.lifecycle.outbox_marker import OutboxMarker
from rune.runtime.lifecycle.parent_reporter import ParentReporter
from rune.runtime.lifecycle.signals import SignalDelivery
from rune.runtime.live import RunningNodes
from rune.runtime.live_follower import LiveFollower
from rune.runtime.messaging.completion_publisher import CompletionPublisher, ExternalExecutor
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.access import AccessService
from rune.runtime.services.audit_log import AuditLog
from rune.runtime.services.bulk import BulkService
from rune.runtime.services.credentials import CredentialService
from rune.runtime.services.dead_letters import DeadLetterService, DeadMessageService
from rune.runtime.services.executions import ExecutionService
from rune.runtime.services.handlers import HandlerService
from rune.runtime.services.start_limits import MAX_WAITING, Limiter, LimitService
from rune.runtime.services.workers import DrainControl, WorkerService
from rune.runtime.services.workflows import TriggerService, WorkflowService
from rune.runtime.worker.attempt_logs import AttemptLogs
from rune.runtime.worker.leases import Leases
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
    handlers: HandlerService
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
        running: RunningNodes,
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
        self.running = running
        self.attempt_logs = AttemptLogs(backend.blob, self.running)
        self.live = LiveFollower(self.running, backend.live, backend.processes)
        self.signals = SignalDelivery(journal, state, queue, self.data_cache)
        self.completion_publisher: CompletionPublisher | None = None
        self.external_executor: ExternalExecutor | None = None
        if backend.events is not None:
            if backend.completions:
                self.completion_publisher = CompletionPublisher(
                    backend.events, journal, self.data_cache, self.outbox_marker, backend.max_message
                )
            self.external_executor = ExternalExecutor(backend.events)
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
            dead_messages=DeadMessageService(backend.dead_messages, backend.journal, audit_log),
            triggers=triggers,
            credentials=CredentialService(backend.credentials, backend.grants, backend.clock, audit_log),
            access=AccessService(backend.keys, limits, backend.clock, audit_log),
            limits=limits,
            handlers=HandlerService(backend, audit_log),
            bulk=BulkService(backend.bulk, executions, dead_letters, backend.clock, audit_log),
            workers=WorkerService(backend.processes, self.drain_control, audit_log),
        )


class OwnerExecutions(ServiceProxy):
    """The execution service of the owner process."""

    start_definition = remote(ExecutionService.start_definition)
    start = remote(ExecutionService.start)
    signal = remote(ExecutionService.signal)
    cancel = remote(ExecutionService.cancel)
    pause = remote(ExecutionService.pause)
    resume = remote(ExecutionService.resume)
    retry = remote(ExecutionService.retry)
    rerun = remote(ExecutionService.rerun)
    delete_ended = remote(ExecutionService.delete_ended)
    running = remote(ExecutionService.running)
    wait_for_end = remote(ExecutionService.wait_for_end)


class OwnerWorkflows(ServiceProxy):
    """The workflow service of the owner process."""

    deploy = remote(WorkflowService.deploy)
    set_alias = remote(WorkflowService.set_alias)
    archive = remote(WorkflowService.archive)


class OwnerDeadLetters(ServiceProxy):
    """The dead-letter service of the owner process."""

    list = remote(DeadLetterService.list)
    requeue = remote(DeadLetterService.requeue)
    discard = remote(DeadLetterService.discard)


class OwnerDeadMessages(ServiceProxy):
    """The dead-message service of the owner process."""

    list = remote(DeadMessageService.list)
    find = remote(DeadMessageService.find)
    requeue = remote(DeadMessageService.requeue)
    discard = remote(DeadMessageService.discard)


class OwnerTriggers(ServiceProxy):
    """The trigger service of the owner process."""

    list = remote(TriggerService.list)
    find = remote(TriggerService.find)
    enable = remote(TriggerService.enable)
    rotate = remote(TriggerService.rotate)


class OwnerCredentials(ServiceProxy):
    """The credential service of the owner process."""

    add = remote(CredentialService.add)
    rotate = remote(CredentialService.rotate)
    remove = remote(CredentialService.remove)
    reencrypt = remote(CredentialService.reencrypt)
    grant = remote(CredentialService.grant)
    withdraw = remote(CredentialService.withdraw)


class OwnerAccess(ServiceProxy):
    """The access service of the owner process."""

    create_key = remote(AccessService.create_key)
    revoke_key = remote(AccessService.revoke_key)


class OwnerLimits(ServiceProxy):
    """The limit service of the owner process."""

    limit_workflow = remote(LimitService.limit_workflow)
    limit_key = remote(LimitService.limit_key)


class OwnerHandlers(ServiceProxy):
    """The default handlers of the owner process."""

    defaults = remote(HandlerService.defaults)
    set_defaults = remote(HandlerService.set_defaults)
    failed = remote(HandlerService.failed)


class OwnerBulk(ServiceProxy):
    """The bulk jobs of the owner process."""

    create = remote(BulkService.create)
    find = remote(BulkService.find)
    list = remote(BulkService.list)
    outcomes = remote(BulkService.outcomes)
    abort = remote(BulkService.abort)
    finish = remote(BulkService.finish)


class OwnerWorkers(ServiceProxy):
    """The worker service of the owner process."""

    drain = remote(WorkerService.drain)
    resume = remote(WorkerService.resume)


class OwnerServices:
    """The services of the owner process, each under the name that it has in `Services`. `local`: there is none, and
    this process runs the operations itself."""

    executions: OwnerExecutions
    workflows: OwnerWorkflows
    dead_letters: OwnerDeadLetters
    dead_messages: OwnerDeadMessages
    triggers: OwnerTriggers
    credentials: OwnerCredentials
    access: OwnerAccess
    limits: OwnerLimits
    handlers: OwnerHandlers
    bulk: OwnerBulk
    workers: OwnerWorkers

    def __init__(self, methods: RpcMethods, call: Call) -> None:
        for name, proxy in PROXIES.items():
            setattr(self, name, proxy(name, methods, call))
        self.local = False


PROXIES: dict[str, type[ServiceProxy]] = get_type_hints(OwnerServices)
RPC_METHODS = tuple(
    f"{service}.{name}" for service, proxy in PROXIES.items() for name in vars(proxy) if name[0] != "_"
)
"""The methods that other processes can call on the owner. It rejects all others."""

LocalServices = Services | OwnerServices
"""The services of this process, or those of the owner process on the same machine."""
