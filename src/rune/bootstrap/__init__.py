"""Build a running engine from the settings. Only this package imports adapters.

Each backend is a module with the same functions; the drivers of a cluster are imported when a cluster is configured.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from rune.bootstrap import sqlite
from rune.bootstrap.components import Access, optional_imports
from rune.bootstrap.components import add_key as add_key
from rune.bootstrap.components import fresh_key as fresh_key
from rune.bootstrap.sqlite import connected as connected
from rune.core.node_type import Catalogue
from rune.errors import RuneError
from rune.nodes.attempt_log import capture_logging
from rune.nodes.redaction import protect_log
from rune.nodes.registry import Registry
from rune.ports.clock import Clock
from rune.ports.inspection import BackupResult, ClusterSurvey, FileInspection
from rune.ports.journal import StoreDamagedError, StoreUnavailableError
from rune.ports.processes import ProcessInfo, RunningQuery
from rune.ports.retention import RetentionResult, Rule
from rune.runtime.components import LocalServices
from rune.runtime.engine import ROLES, Engine
from rune.runtime.failpoint import arm_from_environment
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver
from rune.settings import Settings

SWITCH_INTERVAL_S = 0.02  # how long a thread keeps the interpreter while another one waits for it


class UnsupportedByBackendError(RuneError):
    """The configured backend does not support the operation."""

    code = "NOT_ON_THIS_BACKEND"


class UnsupportedOverUrlError(RuneError):
    """The operation needs direct access to the stores, but the settings name a server."""

    code = "NOT_OVER_URL"


class BackendModule(Protocol):
    """What `bootstrap.sqlite` and `bootstrap.cluster` have in common."""

    def running_engine(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        registry: Registry | None = None,
        observer: ExecutionObserver | None = None,
        roles: frozenset[str] = ROLES,
    ) -> AbstractAsyncContextManager[Engine]: ...
    def open_services(self, settings: Settings) -> AbstractAsyncContextManager[LocalServices]: ...
    def open_engine(
        self, settings: Settings
    ) -> AbstractAsyncContextManager[tuple[Engine, LocalServices]]: ...
    def open_reader(
        self, settings: Settings, catalogue: Catalogue | None
    ) -> AbstractAsyncContextManager[ExecutionReader]: ...
    def open_live(self, settings: Settings) -> AbstractAsyncContextManager[RunningQuery]: ...
    def open_credentials(self, settings: Settings) -> AbstractAsyncContextManager[CredentialService]: ...
    def open_access(self, settings: Settings) -> AbstractAsyncContextManager[Access]: ...
    async def preview(self, settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult: ...
    async def check_vacuum(self, settings: Settings) -> None: ...
    async def vacuum(self, settings: Settings) -> tuple[int, int]: ...


def _check_no_url(settings: Settings) -> None:
    """Raise if RUNE_URL is set: a command meant for a server must not open a local database by mistake."""
    if settings.url:
        raise UnsupportedOverUrlError(
            f"this is not available over the server at {settings.url}: unset RUNE_URL and run it where the server runs"
        )


def _backend(settings: Settings) -> BackendModule:
    _check_no_url(settings)
    if not settings.clustered:
        return sqlite
    with optional_imports("a cluster"):
        from rune.bootstrap import cluster  # noqa: PLC0415 - its drivers are an extra

    return cluster


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: ExecutionObserver | None = None,
    working: bool = True,
    roles: frozenset[str] = ROLES,
    accept_calls: bool | None = None,
) -> AsyncIterator[Engine]:
    """Run an engine while the block runs.

    Tests pass a clock and a registry. An engine that is not `working` records starts and commands but runs nothing;
    otherwise `roles` selects what it runs. `accept_calls`: see the embedded backend.
    """
    arm_from_environment()
    protect_log()
    capture_logging()
    # The engine creates few reference cycles: frequent young collections only cost time, and a rare collection of very
    # many objects would block the event loop for too long.
    gc.set_threshold(10_000, 20, 50)
    # The thread that writes the database needs the interpreter a few times per batch: let it in between two turns of
    # the event loop, not within a turn.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    backend = _backend(settings)
    run = (
        backend.running_engine
        if settings.clustered
        else partial(sqlite.running_engine, accept_calls=accept_calls)
    )
    active = roles if working else frozenset()
    opened = run(settings, clock=clock, registry=registry, observer=observer, roles=active)
    async with opened as engine:
        yield engine


def open_services(settings: Settings) -> AbstractAsyncContextManager[LocalServices]:
    """Open the services of the owner process, or of this process if there is no owner."""
    return _backend(settings).open_services(settings)


def open_engine(settings: Settings) -> AbstractAsyncContextManager[tuple[Engine, LocalServices]]:
    """Open an engine that runs nothing, for queries, and the services of the owner process or of this process."""
    return _backend(settings).open_engine(settings)


def open_reader(
    settings: Settings, catalogue: Catalogue | None = None
) -> AbstractAsyncContextManager[ExecutionReader]:
    """Open read-only access. It writes nothing, blocks no writer and imports no module with custom nodes.

    A process that has imported them passes their `catalogue`.
    """
    return _backend(settings).open_reader(settings, catalogue)


def open_live(settings: Settings) -> AbstractAsyncContextManager[RunningQuery]:
    """Open a query about what runs now, in the owner process or in the workers of a cluster."""
    return _backend(settings).open_live(settings)


def open_credentials(settings: Settings) -> AbstractAsyncContextManager[CredentialService]:
    """Open read-only access to the credentials, without their values."""
    return _backend(settings).open_credentials(settings)


def open_access(settings: Settings) -> AbstractAsyncContextManager[Access]:
    """Open read-only access to API keys, grants, limits, triggers and the audit log."""
    return _backend(settings).open_access(settings)


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult:
    """Return what the retention rules would delete now."""
    return await _backend(settings).preview(settings, rules, now)


async def check_vacuum(settings: Settings) -> None:
    """Raise unless the database may be compacted by this user."""
    await _backend(settings).check_vacuum(settings)


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Compact the database; return its size before and after."""
    return await _backend(settings).vacuum(settings)


def backup(settings: Settings, target: Path) -> BackupResult:
    """Back up the embedded database while it is in use."""
    _check_embedded(settings)
    return sqlite.backup(settings, target)


def restore(settings: Settings, copy: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Restore a backup; return its content and the path to which the previous file was moved."""
    _check_embedded(settings)
    return sqlite.restore(settings, copy, replace=replace)


def _check_embedded(settings: Settings) -> None:
    _check_no_url(settings)
    if settings.clustered:
        raise UnsupportedByBackendError(
            "a cluster is backed up with the tools of PostgreSQL: pg_dump, or pg_basebackup with WAL archiving"
        )


def check_home(settings: Settings) -> None:
    """Raise SettingsError if the settings name a folder that cannot be read or does not exist."""
    if not settings.clustered:
        sqlite.check_home(settings)


def exists(settings: Settings) -> bool:
    """Return whether a store exists. On a cluster this is always true: an unreachable one raises later."""
    _check_no_url(settings)
    return settings.clustered or sqlite.exists(settings)


async def find_owner(settings: Settings) -> tuple[bool, str]:
    """Return whether a process runs executions now, and which one, as text. While Redis is away nobody can tell: the
    workers of a cluster wait for it."""
    if settings.clustered:
        try:
            listed = await list_processes(settings)
        except StoreDamagedError:
            raise
        except StoreUnavailableError:
            return True, ""
        workers = [each for each in listed if "worker" in each.roles]
        return bool(workers), f"on {len(workers)} worker{'s' if len(workers) != 1 else ''}"
    owned, pid = sqlite.find_owner(settings)
    return owned, f"in process {pid}" if owned and pid else ""


def owner_pid(settings: Settings) -> int | None:
    """Return the pid of the process that owns the database file."""
    return None if settings.clustered else sqlite.find_owner(settings)[1]


async def list_processes(settings: Settings) -> list[ProcessInfo]:
    """Return the active processes of the cluster."""
    _check_no_url(settings)
    if not settings.clustered:
        raise UnsupportedByBackendError(
            "the embedded backend has no workers: the process of `rune run` or `rune up` runs all nodes"
        )
    from rune.bootstrap import cluster  # noqa: PLC0415 - its drivers are an extra

    return await cluster.list_processes(settings)


async def wait_for_stores(settings: Settings) -> None:
    """Wait at the start of a server until the stores of its cluster can be used, for at most `start_timeout` seconds.
    The embedded database needs no waiting."""
    if not settings.clustered:
        return
    with optional_imports("a cluster"):
        from rune.bootstrap import cluster  # noqa: PLC0415 - its drivers are an extra

    await cluster.wait_for_stores(settings)


async def migrate(settings: Settings) -> list[str]:
    """Migrate the stores to the version of this program; return the applied steps."""
    _check_no_url(settings)
    if not settings.clustered:
        raise UnsupportedByBackendError(
            "the embedded database is upgraded when it is opened; there is nothing to migrate"
        )
    from rune.bootstrap import cluster  # noqa: PLC0415 - its drivers are an extra

    return await cluster.migrate(settings)


async def grant_roles(settings: Settings) -> list[str]:
    """Grant the database roles exactly the permissions they need; return their names."""
    _check_no_url(settings)
    from rune.bootstrap import cluster  # noqa: PLC0415 - its drivers are an extra

    return await cluster.grant_roles(settings)


async def survey_cluster(settings: Settings) -> ClusterSurvey:
    """Inspect the stores of a cluster without joining it."""
    _check_no_url(settings)
    with optional_imports("a cluster"):
        from rune.bootstrap.admin import survey_cluster as look  # noqa: PLC0415 - its drivers are an extra

    return await look(settings)


def inspect_file(settings: Settings) -> FileInspection:
    """Inspect the embedded database file without opening it for writing."""
    _check_no_url(settings)
    return sqlite.inspect_file(settings)
