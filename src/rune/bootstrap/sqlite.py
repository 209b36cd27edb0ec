"""The embedded backend: one database file, one process that owns it, and other processes that call the owner."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

from rune.adapters.sqlite import backup as copying
from rune.adapters.sqlite import retention as embedded_retention
from rune.adapters.sqlite.access import (
    SqliteApiKeys,
    SqliteAuditLog,
    SqliteCredentials,
    SqliteGrants,
    SqliteSessions,
    SqliteStartLimits,
)
from rune.adapters.sqlite.backup import inspect, lock_owner
from rune.adapters.sqlite.block_marks import FileBlockMarks
from rune.adapters.sqlite.database import check_not_empty, reporting_damage, reporting_errors
from rune.adapters.sqlite.expectations import SqliteExpectations
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.owner import Lock, OwnerClient, OwnerConnection, OwnerServer, socket_of
from rune.adapters.sqlite.schema import create_empty_file
from rune.adapters.sqlite.stores import (
    ReadOnlyDatabase,
    SqliteBlobs,
    SqliteBulkJobs,
    SqliteCounts,
    SqliteHooks,
    SqliteIndex,
    SqliteStores,
)
from rune.adapters.sqlite.workflows import SqliteTriggers, SqliteWorkflows
from rune.bootstrap.components import Access, credential_service, keys, new_engine
from rune.codec.rpc import RpcMethods
from rune.core.node_type import Catalogue
from rune.nodes.registry import Registry, full_registry, standard_catalogue
from rune.ports.clock import Clock, SystemClock
from rune.ports.inspection import BackupResult, FileInspection
from rune.ports.processes import (
    LiveChannel,
    LiveReport,
    NoOwnerError,
    RunningQuery,
    RunningSnapshot,
)
from rune.ports.retention import RetentionResult, Rule
from rune.runtime.backend import Backend
from rune.runtime.components import RPC_METHODS, OwnerServices, Services
from rune.runtime.engine import ROLES, Engine
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver, ObservedState
from rune.settings import DEFAULT_HOME, Settings, SettingsError


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: ExecutionObserver | None = None,
    roles: frozenset[str] = ROLES,
    accept_calls: bool | None = None,
) -> AsyncIterator[Engine]:
    """Run an engine that owns the database file while the block runs; raise FileInUseError if another process does.

    `accept_calls`: whether other processes may call its services; by default if it has roles and uses the system clock.
    """
    opened = bool(roles) and clock is None if accept_calls is None else accept_calls
    registry = registry or full_registry(settings.nodes)
    clock = clock or SystemClock()
    with Lock(settings.database), reporting_errors(settings.database):
        stores = SqliteStores(settings.database, clock, relaxed=settings.durability == "relaxed")
        stores.database.start()
        try:
            advice = "" if roles else "set RUNE_NODES=MODULE to the module that has it"
            engine = _engine(settings, stores, clock, registry, observer, advice=advice)
            async with AsyncExitStack() as stack:
                if opened:  # closed after the last node has ended, so that callers are served until then
                    methods = RpcMethods(Services, RPC_METHODS)
                    await stack.enter_async_context(
                        OwnerServer(socket_of(settings.database), methods, engine.services)
                    )
                await stack.enter_async_context(engine.running(grace=settings.grace, roles=roles))
                yield engine
        finally:
            await stores.journal.close()


def _engine(
    settings: Settings,
    stores: SqliteStores,
    clock: Clock,
    registry: Registry,
    observer: ExecutionObserver | None = None,
    *,
    reading: bool = False,
    advice: str = "",
    live: LiveChannel | None = None,
) -> Engine:
    plans = PlanCache(stores.journal, registry.catalogue, reading=reading, advice=advice)
    state = stores.state(plans.plan)
    observed = ObservedState(state, observer) if observer is not None else state
    credentials = SqliteCredentials(stores.database, keys(settings))
    backend = Backend(
        shared_clocks=True,
        journal=stores.journal,
        state=observed,
        queue=stores.queue,
        blob=stores.blob,
        workflows=SqliteWorkflows(stores.database),
        retention=stores.retention,
        credentials=credentials,
        clock=clock,
        triggers=SqliteTriggers(stores.database),
        expectations=SqliteExpectations(stores.database),
        admission=state,
        keys=SqliteApiKeys(stores.database),
        sessions=SqliteSessions(stores.database),
        grants=SqliteGrants(stores.database),
        log=SqliteAuditLog(stores.database),
        limits=SqliteStartLimits(stores.database),
        bulk=SqliteBulkJobs(stores.database),
        counts=SqliteCounts(stores.database),
        hooks=SqliteHooks(stores.database, clock),
        live=live,
        block_marks=FileBlockMarks(settings.database),
    )
    return new_engine(settings, backend, plans, registry, observer)


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[OwnerServices]:
    """Open the services of the owner process, or of this process if there is no owner."""
    methods = RpcMethods(Services, RPC_METHODS)

    @asynccontextmanager
    async def own() -> AsyncIterator[Services]:
        async with running_engine(settings, roles=frozenset()) as engine:
            services.local = True
            yield engine.services

    async with OwnerClient(socket_of(settings.database), methods, own, new_execution_id) as caller:
        services = OwnerServices(methods, caller.call)
        yield services


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[OwnerServices]:
    """Open the services of the owner process, over one connection; raise NoOwnerError if there is none."""
    methods = RpcMethods(Services, RPC_METHODS)
    connection = await OwnerConnection.open(socket_of(settings.database), methods)
    try:
        yield OwnerServices(methods, connection.call)
    finally:
        connection.close()


@asynccontextmanager
async def open_reader(
    settings: Settings, catalogue: Catalogue | None = None
) -> AsyncIterator[ExecutionReader]:
    """Open read-only access, also while another process owns the file. It blocks no writer."""
    with _reading(settings) as database:
        journal = SqliteJournal(database)
        plans = PlanCache(journal, catalogue or standard_catalogue(), reading=True)
        workflows = SqliteWorkflows(database)
        yield ExecutionReader(
            SqliteIndex(database), journal, SqliteBlobs(database), plans, database, workflows
        )


@asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator[tuple[Engine, OwnerServices]]:
    """Open an engine that runs nothing and reads the file only, also while another process owns it, and the services of
    the owner, or of this process if there is no owner."""
    with _reading(settings) as database:
        clock = SystemClock()
        stores = SqliteStores(settings.database, clock, database=database)
        async with open_live(settings) as running, open_services(settings) as services:
            live = _OwnerChannel(running)
            engine = _engine(settings, stores, clock, full_registry(), reading=True, live=live)
            try:
                yield engine, services
            finally:
                await engine.live.close()


class _OwnerChannel:
    """Asks the owner process what runs now. Nothing else is sent over it."""

    def __init__(self, running: RunningQuery) -> None:
        self._running = running
        self._on_report: Callable[[LiveReport], None] | None = None

    async def ask(self, executions: Sequence[str]) -> int:
        for each in executions:
            found = await self._running(each)
            if self._on_report is not None:
                self._on_report(LiveReport("owner", {each: found.nodes}))
        return 1

    async def report(self, report: LiveReport) -> None:
        raise NotImplementedError("this process runs no nodes")

    async def serve(self, on_ask: Callable[[Sequence[str]], None]) -> None:
        raise NotImplementedError("this process runs no nodes")

    async def listen(self, on_report: Callable[[LiveReport], None], listening: asyncio.Event) -> None:
        self._on_report = on_report
        listening.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def open_live(settings: Settings) -> AsyncIterator[RunningQuery]:
    """Open a query to the owner process. Without an owner nothing runs."""
    async with AsyncExitStack() as stack:
        try:
            services = await stack.enter_async_context(connected(settings))
        except NoOwnerError:
            yield _nothing_runs
        else:
            yield services.executions.running


async def _nothing_runs(execution: str) -> RunningSnapshot:
    return RunningSnapshot([])


@asynccontextmanager
async def open_credentials(settings: Settings) -> AsyncIterator[CredentialService]:
    """Open read-only access to the credentials, without their values."""
    with _reading(settings) as database:
        credentials = SqliteCredentials(database, keys(settings))
        yield credential_service(credentials, SqliteGrants(database), SqliteAuditLog(database))


@asynccontextmanager
async def open_access(settings: Settings) -> AsyncIterator[Access]:
    """Open read-only access to API keys, grants, limits, triggers and the audit log."""
    with _reading(settings) as database:
        yield Access(
            SqliteApiKeys(database),
            SqliteGrants(database),
            SqliteAuditLog(database),
            SqliteStartLimits(database),
            SqliteTriggers(database),
        )


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult:
    """Return what the retention rules would delete now."""
    with _reading(settings) as database:
        return embedded_retention.preview(database.reader, database.path, rules, now)


@contextmanager
def _reading(settings: Settings) -> Iterator[ReadOnlyDatabase]:
    """Open the file for reading; a damaged one raises StoreDamagedError, wherever the damage is found."""
    with reporting_damage(settings.database), closing(ReadOnlyDatabase(settings.database)) as database:
        yield database


async def check_vacuum(settings: Settings) -> None:
    """Raise nothing: who may write the file may compact it."""


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Compact the file; return its size before and after. No other process may own it."""
    async with running_engine(settings, roles=frozenset()) as engine:
        return await engine.backend.retention.vacuum()


def backup(settings: Settings, target: Path) -> BackupResult:
    """Back up the file, also while another process owns it."""
    return copying.create_backup(settings.database, target)


def restore(settings: Settings, copy: Path, *, replace: bool) -> tuple[BackupResult, Path | None]:
    """Restore a backup, while no process owns the file; return its content and the path of the previous file."""
    return copying.restore_backup(copy, settings.database, replace=replace)


def create_database(settings: Settings) -> None:
    """Create the database file without running the migrations one by one, for tests; see `create_empty_file`."""
    create_empty_file(settings.database)


def check_home(settings: Settings) -> None:
    """Raise if the folder of the file cannot be read, or does not exist although the settings name it: what is missing
    there is no empty store, but a wrong setting."""
    folder = settings.database.parent
    named = "RUNE_JOURNAL" if settings.journal else "RUNE_HOME"
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        if settings.home == DEFAULT_HOME and not settings.journal:
            return
        raise SettingsError(f"{named}: {folder} does not exist; `rune run` and `rune up` create it") from None
    except OSError as error:
        raise SettingsError(f"{named}: cannot use {folder}: {_reason(error)}") from None
    if not is_folder:
        raise SettingsError(f"{named}: {folder} is not a folder")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise SettingsError(f"{named}: cannot use {folder}: permission denied")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def exists(settings: Settings) -> bool:
    """Return whether the database file exists; raise if it is empty."""
    check_not_empty(settings.database)
    return settings.database.is_file()


def inspect_file(settings: Settings) -> FileInspection:
    """Inspect the database file without opening it for writing."""
    return inspect(settings.database)


def find_owner(settings: Settings) -> tuple[bool, int | None]:
    """Return whether a process owns the file, and its pid."""
    return lock_owner(settings.database)
