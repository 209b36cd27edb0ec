"""The embedded backend: one file, one process that owns it, and others that ask that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from rune.adapters.sqlite import backup as copying
from rune.adapters.sqlite import retention as embedded_retention
from rune.adapters.sqlite.access import SqliteApiKeys, SqliteAuditLog, SqliteStartLimits
from rune.adapters.sqlite.backup import inspect, lock_owner
from rune.adapters.sqlite.credentials import SqliteCredentials, SqliteGrants
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.owner import Lock, OwnerClient, OwnerConnection, OwnerServer, socket_of
from rune.adapters.sqlite.readonly import ReadOnlyDatabase, SqliteIndex
from rune.adapters.sqlite.stores import SqliteBlobs, SqliteStores
from rune.adapters.sqlite.triggers import SqliteTriggers
from rune.adapters.sqlite.workflows import SqliteWorkflows
from rune.bootstrap.components import Access, keys, new_engine
from rune.codec.rpc import Call, RpcMethods, ServiceProxy
from rune.nodes.registry import Registry, full_registry
from rune.ports.clock import Clock
from rune.ports.inspection import BackupResult, FileInspection
from rune.ports.processes import RPC_METHODS
from rune.ports.retention import RetentionResult, Rule
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.components import Services
from rune.runtime.engine import ROLES, Engine
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.audit_log import AuditLog
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver, ObservedState
from rune.settings import Settings


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: ExecutionObserver | None = None,
    roles: frozenset[str] = ROLES,
    door: bool | None = None,
) -> AsyncIterator[Engine]:
    """An engine that owns its file while the block runs; InUse where another process does.

    `door`: whether other processes may ask it; unless said, if it works and time is real.
    """
    opened = bool(roles) and clock is None if door is None else door
    registry = registry or full_registry(settings.nodes)
    clock = clock or SystemClock()
    with Lock(settings.database):
        embedded = SqliteStores(settings.database, clock, relaxed=settings.durability == "relaxed")
        embedded.database.start()
        try:
            engine = _engine(settings, embedded, clock, registry, observer)
            async with AsyncExitStack() as stack:
                if opened:  # until the last node has ended: who asks meanwhile is not turned away
                    methods = RpcMethods(Services, RPC_METHODS)
                    await stack.enter_async_context(
                        OwnerServer(socket_of(settings.database), methods, engine.services)
                    )
                await stack.enter_async_context(engine.running(grace=settings.grace, roles=roles))
                yield engine
        finally:
            await embedded.journal.close()


def _engine(
    settings: Settings,
    embedded: SqliteStores,
    clock: Clock,
    registry: Registry,
    observer: ExecutionObserver | None,
) -> Engine:
    plans = PlanCache(embedded.journal, registry.catalogue)
    state = embedded.state(plans.plan)
    seen = ObservedState(state, observer) if observer is not None else state
    secret = SqliteCredentials(embedded.database, keys(settings))
    backend = Backend(
        journal=embedded.journal,
        state=seen,
        queue=embedded.queue,
        blob=embedded.blob,
        library=SqliteWorkflows(embedded.database),
        retention=embedded.retention,
        secret=secret,
        clock=clock,
        triggers=SqliteTriggers(embedded.database),
        admission=state,
        keys=SqliteApiKeys(embedded.database),
        grants=SqliteGrants(embedded.database),
        log=SqliteAuditLog(embedded.database),
        limits=SqliteStartLimits(embedded.database),
    )
    return new_engine(settings, backend, plans, registry, observer)


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """The verbs, done by the owner of the file, or by this process where there is none."""

    methods = RpcMethods(Services, RPC_METHODS)

    @asynccontextmanager
    async def own() -> AsyncIterator[Services]:
        async with running_engine(settings, roles=frozenset()) as engine:
            services.local = True
            yield engine.services

    async with OwnerClient(socket_of(settings.database), methods, own, new_execution_id) as caller:
        services = _proxies(methods, caller.call)
        yield services


def _proxies(methods: RpcMethods, call: Call) -> Services:
    """Services whose methods run in the owner of the file."""
    made: dict[str, Any] = {
        name: ServiceProxy(name, methods, call) for name in Services.__struct_fields__ if name != "local"
    }
    return Services(**made, local=False)


@asynccontextmanager
async def connected(
    settings: Settings,
) -> AsyncIterator[tuple[Services, Callable[[], Awaitable[None]]]]:
    """The verbs of the process that owns the file, and a way to wait until it goes; NoOwner where nobody listens."""
    methods = RpcMethods(Services, RPC_METHODS)
    line = await OwnerConnection.open(socket_of(settings.database), methods)
    try:
        yield _proxies(methods, line.ask), line.gone
    finally:
        line.close()


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[ExecutionReader]:
    """A look into the file, whoever owns it. Nothing is written and nobody waits."""
    with closing(ReadOnlyDatabase(settings.database)) as database:
        journal = SqliteJournal(database)
        plans = PlanCache(journal, full_registry(settings.nodes).catalogue)
        library = SqliteWorkflows(database)
        yield ExecutionReader(SqliteIndex(database), journal, SqliteBlobs(database), plans, database, library)


@asynccontextmanager
async def open_credentials(settings: Settings) -> AsyncIterator[CredentialService]:
    """The credentials as anybody may see them, whoever owns the file."""
    with closing(ReadOnlyDatabase(settings.database)) as database:
        clock = SystemClock()
        yield CredentialService(
            SqliteCredentials(database, keys(settings)),
            SqliteGrants(database),
            clock,
            AuditLog(SqliteAuditLog(database), clock),
        )


@asynccontextmanager
async def open_access(settings: Settings) -> AsyncIterator[Access]:
    """Keys, grants and the log, whoever owns the file."""
    with closing(ReadOnlyDatabase(settings.database)) as database:
        yield Access(
            SqliteApiKeys(database),
            SqliteGrants(database),
            SqliteAuditLog(database),
            SqliteStartLimits(database),
        )


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult:
    """What a collection would remove, whoever owns the file."""
    with closing(ReadOnlyDatabase(settings.database)) as database:
        return embedded_retention.preview(database.reader, database.path, rules, now)


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Write the file anew, without gaps; its size before and after. Nobody else may own it."""
    async with running_engine(settings, roles=frozenset()) as engine:
        return await engine.backend.retention.vacuum()


def backup(settings: Settings, target: Path) -> BackupResult:
    """Copy the file, whoever owns it."""
    return copying.create_backup(settings.database, target)


def restore(settings: Settings, copy: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Make a copy the file, which nobody may own; and where the one before was set aside."""
    return copying.restore_backup(copy, settings.database, replace=replace)


def exists(settings: Settings) -> bool:
    """Whether anything was ever run here."""
    return settings.database.is_file() and settings.database.stat().st_size > 0


def inspect_file(settings: Settings) -> FileInspection:
    """What can be found out about the backend without taking part."""
    return inspect(settings.database)


def find_owner(settings: Settings) -> tuple[bool, int | None]:
    """Whether some process runs executions on this file, and which."""
    return lock_owner(settings.database)
