"""The services of the process that owns the database file, as other processes call them over its socket."""

from __future__ import annotations

from rune.codec.rpc import Call, RpcMethods, ServiceProxy, remote
from rune.runtime.components import Services
from rune.runtime.services.access import AccessService, LimitService
from rune.runtime.services.bulk import BulkService
from rune.runtime.services.credentials import CredentialService
from rune.runtime.services.dead_letters import DeadLetterService, DeadMessageService
from rune.runtime.services.executions import ExecutionService
from rune.runtime.services.triggers import TriggerService
from rune.runtime.services.workers import WorkerService
from rune.runtime.services.workflows import WorkflowService


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


PROXIES: dict[str, type[ServiceProxy]] = {
    "executions": OwnerExecutions,
    "workflows": OwnerWorkflows,
    "dead_letters": OwnerDeadLetters,
    "dead_messages": OwnerDeadMessages,
    "triggers": OwnerTriggers,
    "credentials": OwnerCredentials,
    "access": OwnerAccess,
    "limits": OwnerLimits,
    "bulk": OwnerBulk,
    "workers": OwnerWorkers,
}
RPC_METHODS = tuple(
    f"{service}.{name}" for service, proxy in PROXIES.items() for name in vars(proxy) if name[0] != "_"
)
"""The methods that other processes can call on the owner. It rejects all others."""


class OwnerServices:
    """The services of the owner process. `local`: there is none, and this process runs the operations itself."""

    def __init__(self, methods: RpcMethods, call: Call) -> None:
        self.executions = OwnerExecutions("executions", methods, call)
        self.workflows = OwnerWorkflows("workflows", methods, call)
        self.dead_letters = OwnerDeadLetters("dead_letters", methods, call)
        self.dead_messages = OwnerDeadMessages("dead_messages", methods, call)
        self.triggers = OwnerTriggers("triggers", methods, call)
        self.credentials = OwnerCredentials("credentials", methods, call)
        self.access = OwnerAccess("access", methods, call)
        self.limits = OwnerLimits("limits", methods, call)
        self.bulk = OwnerBulk("bulk", methods, call)
        self.workers = OwnerWorkers("workers", methods, call)
        self.local = False


LocalServices = Services | OwnerServices
"""The services of this process, or those of the owner process on the same machine."""
