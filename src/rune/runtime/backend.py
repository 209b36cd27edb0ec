"""The backend: one adapter per port, picked by configuration."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from rune.core.plan.model import Plan
from rune.ports.access import ApiKeyStore, AuditLogStore, StartLimitStore
from rune.ports.blobs import BlobStore
from rune.ports.clock import Clock
from rune.ports.credentials import CredentialGrants, CredentialStore
from rune.ports.journal import ExecutionRecord, Journal
from rune.ports.outbox import Outbox
from rune.ports.processes import ProcessRegistry
from rune.ports.queue import Queue
from rune.ports.retention import Retention
from rune.ports.state import Applied, State
from rune.ports.triggers import TriggerStore
from rune.ports.workflows import WorkflowStore


class Admission(Protocol):
    """A state that can open an execution without reading it back."""

    def arriving(self, execution: str) -> AbstractContextManager[None]:
        """While this lasts nobody else opens the execution."""

    async def admit(self, accepted: ExecutionRecord, plan: Plan) -> Applied:
        """Open it."""

    async def room(self) -> bool:
        """Whether it may be opened right away; may wait a moment to find out."""


class Notifier(Protocol):
    """Hints that executions of others have ended. Any of them may be lost."""

    async def ended(self) -> set[str]:
        """Wait for some; which executions."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime stands on."""

    journal: Journal
    state: State
    queue: Queue
    blob: BlobStore
    library: WorkflowStore
    retention: Retention
    secret: CredentialStore
    clock: Clock
    triggers: TriggerStore
    admission: Admission
    keys: ApiKeyStore  # of the API
    grants: CredentialGrants
    log: AuditLogStore
    limits: StartLimitStore
    outbox: Outbox | None = None  # where journal and state are not one store
    fleet: ProcessRegistry | None = None  # where several processes take part
    news: Notifier | None = None
