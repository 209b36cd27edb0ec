"""An inspection: what a backend can tell about itself and its place to somebody who takes no part."""

from __future__ import annotations

import msgspec

from rune.ports.fleet import Member


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
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


class Survey(msgspec.Struct, frozen=True, kw_only=True):
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
    workers: tuple[Member, ...] = ()
    schedulers: tuple[Member, ...] = ()
    keys: int = 0  # of the credentials
    keys_from: str = ""
    keys_trouble: str = ""
