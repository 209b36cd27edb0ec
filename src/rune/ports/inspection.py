"""Reports about the stores of a backend: inspections for `rune doctor`, queue and outbox statistics, backups.

The statistics protocols are optional: a store implements those for which it has numbers.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import msgspec

from rune.ports.processes import ProcessInfo

Verdict = Literal["ok", "warn", "bad"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check of an installation, with advice."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


class FileInspection(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an embedded database file and its folder, without a verdict."""

    database: str
    exists: bool
    file_system: str
    network: bool
    writable: bool
    free_bytes: int
    file_bytes: int = 0
    sqlite: str
    schema: int | None = None  # schema version of the file; None if it cannot be read
    known_schema: int  # schema version of this program
    damage: str = ""
    owned: bool = False
    owner: int | None = None  # process id
    sync_ms: float | None = None  # median duration of a small write with fsync
    running: int = 0
    quarantined: tuple[str, ...] = ()


class ClusterSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the stores of a cluster. For a store that did not reply, only its `trouble` is set."""

    journal: str  # address without secrets
    journal_trouble: str = ""
    postgres: str = ""  # version
    schema: int = 0  # 0: not migrated yet
    known_schema: int = 0
    fsync: bool = True
    journal_ms: float = 0.0  # median duration of a small query
    journal_skew: float = 0.0  # seconds by which its clock is ahead of this process
    journal_user: str = ""
    journal_roles: tuple[str, ...] = ()  # roles that this user has the privileges for
    journal_lacks: tuple[str, ...] = ()  # missing privileges, if the user has none of the roles
    may_migrate: bool = True
    quarantined: tuple[str, ...] = ()
    named_queues: tuple[tuple[str, str], ...] = ()  # queues that nodes name, each with a workflow
    state: str
    state_trouble: str = ""
    stores_differ: str = ""  # why this database and this Redis are not those of one cluster
    redis: str = ""  # version
    aof: bool = False
    policy: str = ""
    memory: int = 0
    memory_limit: int = 0  # 0: unlimited
    state_ms: float = 0.0
    state_skew: float = 0.0
    state_lacks: tuple[str, ...] = ()  # commands that this user may not run
    state_owner: bool = False  # this user loads functions and reads no key, as that of `rune migrate`
    queue: str = ""  # address of the broker; empty: none is used
    queue_trouble: str = ""
    rabbitmq: str = ""  # version
    queue_role: str = ""  # role that the user's permissions were checked for
    queue_lacks: tuple[str, ...] = ()
    queue_missing: int = 0  # number of queues and exchanges that are not declared yet
    queue_differs: str = ""  # a queue or exchange whose declaration differs from the settings
    free_space: tuple[tuple[str, int], ...] = ()  # folders of this machine with their free bytes
    workers: tuple[ProcessInfo, ...] = ()
    schedulers: tuple[ProcessInfo, ...] = ()
    keys: int = 0  # number of encryption keys for credentials
    keys_from: str = ""
    keys_trouble: str = ""


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: hints that wait for a free slot, hints that workers hold, and the age of the oldest that waits (s)."""

    queue: str
    waiting: int
    held: int | None = None  # None: unknown
    age: float | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Number of outbox rows, and how long the oldest unprocessed one is overdue (s)."""

    rows: int
    lag: float


@runtime_checkable
class ReportsDepth(Protocol):
    """A queue that can report its depth."""

    async def depths(self) -> list[QueueDepth]:
        """Return the depth of each known queue."""


@runtime_checkable
class CountsDeadLetters(Protocol):
    """A queue that can count its dead letters."""

    async def dead_letters(self) -> int | None:
        """Return the number of messages that no worker could process; None if this process may not count them."""


@runtime_checkable
class ReportsBacklog(Protocol):
    """An outbox that can report its backlog."""

    async def backlog(self) -> Backlog:
        """Return the current backlog."""


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a backup of an embedded database."""

    bytes: int
    schema: int
    executions: int
    running: int
    credentials: int


@runtime_checkable
class ChecksWrites(Protocol):
    """A store that knows whether it can be written."""

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError with the reason if writes fail."""
