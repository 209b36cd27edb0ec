"""The embedded backend: one file, one process that owns it, and others that ask that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import cast

from rune.adapters.sqlite import backup as copying
from rune.adapters.sqlite import retention as embedded_retention
from rune.adapters.sqlite.access import EmbeddedKeys, EmbeddedLimits, EmbeddedLog
from rune.adapters.sqlite.backup import inspect, lock_owner
from rune.adapters.sqlite.credentials import EmbeddedGrants, EmbeddedSecret
from rune.adapters.sqlite.journal import EmbeddedJournal
from rune.adapters.sqlite.owner import Caller, Door, Line, Lock, socket_of
from rune.adapters.sqlite.readonly import EmbeddedIndex, ReadOnly
from rune.adapters.sqlite.stores import Embedded, EmbeddedBlob
from rune.adapters.sqlite.triggers import EmbeddedTriggers
from rune.adapters.sqlite.workflows import EmbeddedLibrary
from rune.bootstrap.components import Access, keys, new_engine
from rune.codec.rpc import Verbs
from rune.nodes.registry import Registry, full_registry
from rune.ports.clock import Clock
from rune.ports.inspection import Copied, Inspection
from rune.ports.processes import VERBS
from rune.ports.retention import Collected, Rule
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.engine import ROLES, Engine
from rune.runtime.lifecycle.launcher import new_execution_id
from rune.runtime.messaging.state_middleware import Observer, observed
from rune.runtime.plan_cache import Planbook
from rune.runtime.queries.reader import Reader
from rune.runtime.services.credentials import Vault
from rune.runtime.services.executions import Desk
from rune.settings import Settings


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: Observer | None = None,
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
        embedded = Embedded(settings.database, clock, relaxed=settings.durability == "relaxed")
        embedded.database.start()
        try:
            engine = _engine(settings, embedded, clock, registry, observer)
            async with AsyncExitStack() as stack:
                if opened:  # until the last node has ended: who asks meanwhile is not turned away
                    verbs = Verbs(Desk, VERBS)
                    await stack.enter_async_context(Door(socket_of(settings.database), verbs, engine.desk))
                await stack.enter_async_context(engine.running(grace=settings.grace, roles=roles))
                yield engine
        finally:
            await embedded.journal.close()


def _engine(
    settings: Settings, embedded: Embedded, clock: Clock, registry: Registry, observer: Observer | None
) -> Engine:
    plans = Planbook(embedded.journal, registry.catalogue)
    state = embedded.state(plans.plan)
    seen = observed(state, observer) if observer is not None else state
    secret = EmbeddedSecret(embedded.database, keys(settings))
    backend = Backend(
        journal=embedded.journal,
        state=seen,
        queue=embedded.queue,
        blob=embedded.blob,
        library=EmbeddedLibrary(embedded.database),
        retention=embedded.retention,
        secret=secret,
        clock=clock,
        triggers=EmbeddedTriggers(embedded.database),
        admission=state,
        keys=EmbeddedKeys(embedded.database),
        grants=EmbeddedGrants(embedded.database),
        log=EmbeddedLog(embedded.database),
        limits=EmbeddedLimits(embedded.database),
    )
    return new_engine(settings, backend, plans, registry, observer)


@asynccontextmanager
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    """The verbs, done by the owner of the file, or by this process where there is none."""

    @asynccontextmanager
    async def own() -> AsyncIterator[Desk]:
        async with running_engine(settings, roles=frozenset()) as engine:
            yield engine.desk

    async with Caller(socket_of(settings.database), Verbs(Desk, VERBS), own, new_execution_id) as caller:
        yield cast(Desk, caller)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[tuple[Desk, Callable[[], Awaitable[None]]]]:
    """The verbs of the process that owns the file, and a way to wait until it goes; NoOwner where nobody listens."""
    line = await Line.open(socket_of(settings.database), Verbs(Desk, VERBS))
    try:
        yield cast(Desk, line), line.gone
    finally:
        line.close()


@asynccontextmanager
async def reader(settings: Settings) -> AsyncIterator[Reader]:
    """A look into the file, whoever owns it. Nothing is written and nobody waits."""
    with closing(ReadOnly(settings.database)) as database:
        journal = EmbeddedJournal(database)
        plans = Planbook(journal, full_registry(settings.nodes).catalogue)
        library = EmbeddedLibrary(database)
        yield Reader(EmbeddedIndex(database), journal, EmbeddedBlob(database), plans, database, library)


@asynccontextmanager
async def credentials(settings: Settings) -> AsyncIterator[Vault]:
    """The credentials as anybody may see them, whoever owns the file."""
    with closing(ReadOnly(settings.database)) as database:
        yield Vault(EmbeddedSecret(database, keys(settings)), SystemClock())


@asynccontextmanager
async def access(settings: Settings) -> AsyncIterator[Access]:
    """Keys, grants and the log, whoever owns the file."""
    with closing(ReadOnly(settings.database)) as database:
        yield Access(
            EmbeddedKeys(database), EmbeddedGrants(database), EmbeddedLog(database), EmbeddedLimits(database)
        )


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> Collected:
    """What a collection would remove, whoever owns the file."""
    with closing(ReadOnly(settings.database)) as database:
        return embedded_retention.preview(database.reader, database.path, rules, now)


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Write the file anew, without gaps; its size before and after. Nobody else may own it."""
    async with running_engine(settings, roles=frozenset()) as engine:
        return await engine.backend.retention.vacuum()


def backup(settings: Settings, target: Path) -> Copied:
    """Copy the file, whoever owns it."""
    return copying.take(settings.database, target)


def restore(settings: Settings, copy: Path, *, replace: bool) -> tuple[Copied, Path | None]:
    """Make a copy the file, which nobody may own; and where the one before was set aside."""
    return copying.put_back(copy, settings.database, replace=replace)


def exists(settings: Settings) -> bool:
    """Whether anything was ever run here."""
    return settings.database.is_file() and settings.database.stat().st_size > 0


def inspection(settings: Settings) -> Inspection:
    """What can be found out about the backend without taking part."""
    return inspect(settings.database)


def owner(settings: Settings) -> tuple[bool, int | None]:
    """Whether some process runs executions on this file, and which."""
    return lock_owner(settings.database)
