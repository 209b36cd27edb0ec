"""The backend: one adapter per port, selected by the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from rune.core.execution.fact import ExecutionEnded
from rune.core.plan.model import Plan
from rune.ports.access import ApiKeyStore, AuditLogStore, SessionStore, StartLimitStore
from rune.ports.clock import Clock
from rune.ports.credentials import CredentialGrants, CredentialStore
from rune.ports.journal import (
    BlobStore,
    EventConsumer,
    EventPublisher,
    ExecutionRecord,
    HookStore,
    Journal,
    Outbox,
)
from rune.ports.processes import BlockMarks, LiveChannel, MemoryBlockMarks, OpenKeepalive, ProcessRegistry
from rune.ports.queries import BulkStore, CountStore
from rune.ports.queue import DeadLetterQueue, Queue
from rune.ports.retention import Retention
from rune.ports.state import Applied, State
from rune.ports.workflows import ExpectationStore, TriggerStore, WorkflowStore


class Admission(Protocol):
    """A state that can activate an execution from memory, without reading it back from the journal."""

    def arriving(self, execution: str) -> AbstractContextManager[None]:
        """Keep everything else from activating the execution while the block runs."""

    async def admit(self, accepted: ExecutionRecord, plan: Plan, since: float | None = None) -> Applied:
        """Initialise the state of an execution that was accepted after `since` (monotonic). A store of its own does
        so within seconds of that time or not at all, because another process may activate and end the execution."""

    async def room(self) -> bool:
        """Return whether an execution may be activated now; may wait briefly for others to leave memory."""


class Notifier(Protocol):
    """Notifications that other processes ended executions. Any of them may be lost."""

    async def ended(self) -> Mapping[str, ExecutionEnded | None] | None:
        """Wait for notifications and return the ended executions, each with its terminal row if the notification has
        it; None if notifications may have been missed."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """The stores and services that an engine runs on."""

    journal: Journal
    state: State
    queue: Queue
    blob: BlobStore
    workflows: WorkflowStore
    retention: Retention
    credentials: CredentialStore
    clock: Clock
    triggers: TriggerStore
    expectations: ExpectationStore
    admission: Admission
    keys: ApiKeyStore
    sessions: SessionStore
    grants: CredentialGrants
    log: AuditLogStore
    limits: StartLimitStore
    bulk: BulkStore
    counts: CountStore
    hooks: HookStore
    outbox: Outbox | None = None  # where journal and state are two stores
    processes: ProcessRegistry | None = None  # where several processes share the stores
    delivered: Callable[[], Mapping[str, int]] = dict  # what the queue has received; see ProcessInfo
    notifier: Notifier | None = None
    live: LiveChannel | None = None  # where other processes run nodes
    block_marks: BlockMarks = msgspec.field(default_factory=MemoryBlockMarks)
    keepalive: OpenKeepalive | None = None  # where leases are renewed in a thread
    events: EventPublisher | None = None  # where statuses and ends are published to a broker
    event_consumer: EventConsumer | None = None  # reads them in API processes
    shared_clocks: bool = False  # whether an execution in virtual time shares its clock with its children
    max_message: int | None = (
        None  # bytes of a message that contains whole outputs; None: large ones by reference
    )
    completions: bool = True  # whether ends are published there
    dead_messages: DeadLetterQueue | None = None  # messages of the queue that no worker could process
