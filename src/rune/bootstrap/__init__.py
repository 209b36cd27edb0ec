"""Composition: settings in, a running engine out. The only place that knows adapters.

Each backend is a module with the same verbs; what it needs is imported when it is asked for.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from rune.bootstrap import sqlite
from rune.bootstrap.components import Access
from rune.bootstrap.components import add_key as add_key
from rune.bootstrap.components import fresh_key as fresh_key
from rune.bootstrap.sqlite import connected as connected
from rune.errors import RuneError
from rune.nodes.redaction import protect_log
from rune.nodes.registry import Registry
from rune.ports.clock import Clock
from rune.ports.inspection import BackupResult, ClusterSurvey, FileInspection
from rune.ports.processes import ProcessInfo
from rune.ports.retention import RetentionResult, Rule
from rune.runtime.components import Services
from rune.runtime.engine import ROLES, Engine
from rune.runtime.failpoint import arm_from_environment
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver
from rune.settings import Settings

SWITCH_INTERVAL_S = 0.02  # s that one thread may keep the interpreter while another wants it


class UnsupportedByBackendError(RuneError):
    """Something that the configured backend has no use for."""

    code = "NOT_ON_THIS_BACKEND"


class UnsupportedOverUrlError(RuneError):
    """Something that needs the stores where the settings name a server."""

    code = "NOT_OVER_URL"


def _check_here(settings: Settings) -> None:
    """Who is pointed at a server must not open a file of the same name here by mistake."""
    if settings.url:
        raise UnsupportedOverUrlError(
            f"this cannot be asked of the server at {settings.url}: unset RUNE_URL and run it where the server runs"
        )


def _backend(settings: Settings) -> Any:
    _check_here(settings)
    if not settings.clustered:
        return sqlite
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
    door: bool | None = None,
) -> AsyncIterator[Engine]:
    """An engine while the block runs. Tests bring a clock and node types of their own. One that is not `working` only
    writes down what it is asked for; `roles` says what it does otherwise. `door`: see the embedded backend."""
    arm_from_environment()
    protect_log()
    # Hardly anything here makes cycles: a collection of the young every few hundred objects only costs time, and one of
    # very many stops everybody for too long.
    gc.set_threshold(10_000, 20, 50)
    # Whoever writes the file needs the interpreter a few times a group: let it in when the loop comes around, not amid
    # a turn.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    own = {} if settings.clustered else {"door": door}
    plays = roles if working else frozenset()
    opened: AbstractAsyncContextManager[Engine] = _backend(settings).running_engine(
        settings, clock=clock, registry=registry, observer=observer, roles=plays, **own
    )
    async with opened as engine:
        yield engine


def open_services(settings: Settings) -> AbstractAsyncContextManager[Services]:
    """The verbs, done by whoever may."""
    opened: AbstractAsyncContextManager[Services] = _backend(settings).open_services(settings)
    return opened


def open_reader(settings: Settings) -> AbstractAsyncContextManager[ExecutionReader]:
    """A look at what is remembered. Nothing is written and nobody waits."""
    opened: AbstractAsyncContextManager[ExecutionReader] = _backend(settings).open_reader(settings)
    return opened


def open_credentials(settings: Settings) -> AbstractAsyncContextManager[CredentialService]:
    """The credentials as anybody may see them."""
    opened: AbstractAsyncContextManager[CredentialService] = _backend(settings).open_credentials(settings)
    return opened


def open_access(settings: Settings) -> AbstractAsyncContextManager[Access]:
    """Keys, grants and the log as anybody may see them who can read the store."""
    opened: AbstractAsyncContextManager[Access] = _backend(settings).open_access(settings)
    return opened


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult:
    """What a collection would remove."""
    found: RetentionResult = await _backend(settings).preview(settings, rules, now)
    return found


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Give back what is free; the size before and after."""
    sizes: tuple[int, int] = await _backend(settings).vacuum(settings)
    return sizes


def backup(settings: Settings, target: Path) -> BackupResult:
    """Copy the embedded file while it is in use."""
    _check_file(settings)
    return sqlite.backup(settings, target)


def restore(settings: Settings, copy: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Make a copy the embedded file; what it holds, and where the file before it was set aside."""
    _check_file(settings)
    return sqlite.restore(settings, copy, replace=replace)


def _check_file(settings: Settings) -> None:
    _check_here(settings)
    if settings.clustered:
        raise UnsupportedByBackendError(
            "a cluster is copied with the tools of PostgreSQL: pg_dump, or pg_basebackup and its log"
        )


def exists(settings: Settings) -> bool:
    """Whether there is anything to look at. A cluster that cannot be reached says so itself."""
    _check_here(settings)
    return settings.clustered or sqlite.exists(settings)


async def find_owner(settings: Settings) -> tuple[bool, str]:
    """Whether executions are run now, and by whom, in words."""
    if settings.clustered:
        workers = [each for each in await list_processes(settings) if "worker" in each.roles]
        return bool(workers), f"on {len(workers)} worker{'s' if len(workers) != 1 else ''}"
    owned, pid = sqlite.find_owner(settings)
    return owned, f"in process {pid}" if owned and pid else ""


def owner_pid(settings: Settings) -> int | None:
    """Which process owns the file."""
    return None if settings.clustered else sqlite.find_owner(settings)[1]


async def list_processes(settings: Settings) -> list[ProcessInfo]:
    """The processes that take part."""
    _check_here(settings)
    if not settings.clustered:
        raise UnsupportedByBackendError(
            "there are no workers on the embedded backend: whoever runs `rune run` does all the work"
        )
    found: list[ProcessInfo] = await _backend(settings).list_processes(settings)
    return found


async def migrate(settings: Settings) -> list[str]:
    """Bring the store to the version of this program; the steps that were taken."""
    _check_here(settings)
    if not settings.clustered:
        raise UnsupportedByBackendError(
            "the embedded file is brought up to date by whoever opens it; there is nothing to migrate"
        )
    steps: list[str] = await _backend(settings).migrate(settings)
    return steps


async def grant_roles(settings: Settings) -> list[str]:
    """Give the users of the database what their roles need and no more; their names."""
    _check_here(settings)
    granted: list[str] = await _backend(settings).grant_roles(settings)
    return granted


async def survey_cluster(settings: Settings) -> ClusterSurvey:
    """What can be found out about the stores of a cluster without taking part."""
    _check_here(settings)
    from rune.bootstrap.admin import survey_cluster as look  # noqa: PLC0415 - its drivers are an extra

    return await look(settings)


def inspect_file(settings: Settings) -> FileInspection:
    """What can be found out about the embedded file without taking part."""
    _check_here(settings)
    return sqlite.inspect_file(settings)
