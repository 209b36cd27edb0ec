"""Composition: settings in, a running engine out. The only place that knows adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.embedded.lock import Lock
from rune.adapters.embedded.open import Embedded
from rune.nodes.discovery import full_registry
from rune.runtime.backend import Backend
from rune.runtime.clock import SystemClock
from rune.runtime.engine import Engine
from rune.runtime.failpoint import arm_from_environment
from rune.runtime.planbook import Planbook
from rune.settings import Settings


@asynccontextmanager
async def running_engine(settings: Settings) -> AsyncIterator[Engine]:
    """An engine that owns its file while the block runs."""
    arm_from_environment()
    registry = full_registry(settings.nodes)
    clock = SystemClock()
    with Lock(settings.database):
        embedded = Embedded(settings.database, clock, relaxed=settings.durability == "relaxed")
        embedded.database.start()
        try:
            plans = Planbook(embedded.journal, registry.catalogue)
            state = embedded.state(plans.plan)
            backend = Backend(embedded.journal, state, embedded.queue, embedded.blob, clock)
            engine = Engine(
                backend, plans, registry, in_place=settings.in_place, slots=settings.slots, admission=state
            )
            async with engine.running(grace=settings.grace):
                yield engine
        finally:
            await embedded.journal.close()
