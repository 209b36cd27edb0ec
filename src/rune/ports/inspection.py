"""An inspection: what a backend can tell about itself and its place to somebody who takes no part.

What stores tell of themselves when they are asked how things stand. A store that cannot tell lacks the verb.

Copies: what there is to say about one.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from rune.ports.processes import ProcessInfo


class FileInspection(msgspec.Struct, frozen=True, kw_only=True):
    """Findings, not judgements."""

    database: str
    exists: bool
    file_system: str
    network: bool
    writable: bool
    free_bytes: int
    file_bytes: int = 0
    sqlite: str
    schema: int | None = None  # of the file
    known_schema: int
    damage: str = ""
    owned: bool = False
    owner: int | None = None  # process id
    sync_ms: float | None = None  # median of a small write made durable
    running: int = 0


class ClusterSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What the stores of a cluster tell about themselves. Of one that did not answer: only `trouble`."""

    journal: str  # where it is, without what is secret
    journal_trouble: str = ""
    postgres: str = ""  # its version
    schema: int = 0  # 0: nothing was made there yet
    known_schema: int = 0
    fsync: bool = True
    journal_ms: float = 0.0  # median of a small question
    journal_skew: float = 0.0  # s by which its clock is ahead of ours
    journal_user: str = ""
    journal_roles: tuple[str, ...] = ()  # as what this user may take part
    journal_lacks: tuple[str, ...] = ()  # what it would need, where it may as nothing
    may_migrate: bool = True
    state: str
    state_trouble: str = ""
    redis: str = ""  # its version
    aof: bool = False
    policy: str = ""
    memory: int = 0
    memory_limit: int = 0  # 0: none
    state_ms: float = 0.0
    state_skew: float = 0.0
    state_lacks: tuple[str, ...] = ()  # commands that this user may not run
    queue: str = ""  # where the broker is; empty: there is none
    queue_trouble: str = ""
    rabbitmq: str = ""  # its version
    queue_role: str = ""  # whose work this user was asked for
    queue_lacks: tuple[str, ...] = ()
    queue_missing: int = 0  # queues and exchanges that nobody has made yet
    queue_differs: str = ""  # one that was made otherwise than these settings would
    rooms: tuple[tuple[str, int], ...] = ()  # folders of this machine, and the bytes that are free there
    workers: tuple[ProcessInfo, ...] = ()
    schedulers: tuple[ProcessInfo, ...] = ()
    keys: int = 0  # of the credentials
    keys_from: str = ""
    keys_trouble: str = ""


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: hints that wait for a free slot, those in somebody's hands, and how long the oldest has waited (s)."""

    queue: str
    waiting: int
    held: int | None = None  # None: not known here
    age: float | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an outbox, and how long the oldest that nobody served is overdue (s)."""

    rows: int
    lag: float


@runtime_checkable
class ReportsDepth(Protocol):
    """A queue that knows how deep it is."""

    async def depths(self) -> list[QueueDepth]:
        """Each queue of which anything is known."""


@runtime_checkable
class ReportsBacklog(Protocol):
    """An outbox that knows how far behind it is."""

    async def backlog(self) -> Backlog:
        """How it stands now."""


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy of the embedded file holds."""

    bytes: int
    schema: int
    executions: int
    running: int
    credentials: int
