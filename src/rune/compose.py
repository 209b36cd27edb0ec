"""Composition: settings in, a running engine out. The only place that knows adapters."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rune.adapters.embedded import bare
from rune.adapters.embedded.blob import EmbeddedBlob
from rune.adapters.embedded.inspection import inspect, lock_owner
from rune.adapters.embedded.journal import EmbeddedJournal
from rune.adapters.embedded.lock import Lock
from rune.adapters.embedded.open import Embedded
from rune.adapters.embedded.readonly import EmbeddedIndex, ReadOnly
from rune.nodes.discovery import full_registry
from rune.nodes.registry import Registry
from rune.nodes.world import World
from rune.ports.clock import Clock
from rune.ports.inspection import Inspection
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.engine import Engine
from rune.runtime.failpoint import arm_from_environment
from rune.runtime.observed import Observer, observed
from rune.runtime.planbook import Planbook
from rune.runtime.reader import Reader
from rune.settings import Settings


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[Engine]:
    """An engine that owns its file while the block runs. Tests bring a clock and node types of their own."""
    arm_from_environment()
    # Nothing here makes cycles: a collection of the young every few hundred objects only costs time.
    gc.set_threshold(50_000, 20, 50)
    registry = registry or full_registry(settings.nodes)
    clock = clock or SystemClock()
    with Lock(settings.database):
        embedded = Embedded(settings.database, clock, relaxed=settings.durability == "relaxed")
        embedded.database.start()
        try:
            plans = Planbook(embedded.journal, registry.catalogue)
            state = embedded.state(plans.plan)
            seen = observed(state, observer) if observer is not None else state
            backend = Backend(embedded.journal, seen, embedded.queue, embedded.blob, clock)
            world = World(
                http_policy=settings.http_policy, http_allow=settings.http_allow, smtp_url=settings.smtp_url
            )
            engine = Engine(
                backend,
                plans,
                registry,
                in_place=settings.in_place,
                slots=settings.slots,
                admission=state,
                world=world,
            )
            async with engine.running(grace=settings.grace):
                yield engine
        finally:
            await embedded.journal.close()


@contextmanager
def reader(settings: Settings) -> Iterator[Reader]:
    """A look into the file, whoever owns it. Nothing is written and nobody waits."""
    database = ReadOnly(settings.database)
    try:
        journal = EmbeddedJournal(database)
        plans = Planbook(journal, full_registry(settings.nodes).catalogue)
        yield Reader(EmbeddedIndex(database), journal, EmbeddedBlob(database), plans, database)
    finally:
        database.close()


def inspection(settings: Settings) -> Inspection:
    """What can be found out about the backend without taking part."""
    return inspect(settings.database)


def owner(settings: Settings) -> tuple[bool, int | None]:
    """Whether some process runs executions on this file, and which."""
    return lock_owner(settings.database)


def bare_rate(path: Path, *, nodes: int, claims: bool, per_commit: int) -> float:
    """What the file takes without an engine: the limit that benchmarks stand beside."""
    return bare.bare_rate(path, nodes=nodes, claims=claims, per_commit=per_commit)
