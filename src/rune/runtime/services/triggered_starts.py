"""Starts executions for triggers: ticks of schedules, and webhook deliveries.

Each tick and each delivery has its own execution id, so it starts one execution however often it is tried.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from rune.core.start_keys import HOOK, TICK
from rune.ports.journal import IdempotencyConflictError, IdempotencyKeyExpiredError, Journal
from rune.ports.workflows import ChosenVersion, Trigger
from rune.runtime.lifecycle.launcher import Launcher, StartOptions, new_execution_id
from rune.runtime.payloads import check_start
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.start_limits import Limiter


class TriggeredStart(msgspec.Struct, frozen=True):
    """The execution of a tick or delivery. `again`: it had been started before."""

    execution: str
    again: bool = False


class TriggeredStarts:
    """Starts executions on behalf of triggers."""

    def __init__(self, journal: Journal, plans: PlanCache, launcher: Launcher, limiter: Limiter) -> None:
        self._journal = journal
        self._plans = plans
        self._launcher = launcher
        self._limiter = limiter
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def tick(self, trigger: Trigger, tick: int) -> TriggeredStart:
        """Start the execution of a scheduled time (epoch ms)."""
        at = datetime.fromtimestamp(tick / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        input = msgspec.json.encode({"scheduled_at": at})
        name = f"x{tick:012x}{_digest(trigger.id, str(tick), 7)}"
        return await self._start(trigger, input, name, f"{TICK}{trigger.id}:{tick}", limited=False)

    async def delivery(self, trigger: Trigger, delivery: str | None, input: bytes) -> TriggeredStart:
        """Start the execution of a delivery. A delivery without an id always starts a new one."""
        if delivery is None:
            return await self._start(trigger, input, new_execution_id(), None)
        name = start_key(trigger, delivery)
        # Of simultaneous deliveries with one id the first starts the execution, and the others find it.
        lock = self._starting.setdefault(name, asyncio.Lock())
        async with lock:
            return await self._start(trigger, input, name, f"{HOOK}{trigger.id}:{name}")

    async def has_started(self, trigger: Trigger, delivery: str) -> bool:
        """Return whether the execution of this delivery exists."""
        return await self._journal.accepted(start_key(trigger, delivery)) is not None

    async def _start(
        self, trigger: Trigger, input: bytes, execution: str, key: str | None, *, limited: bool = True
    ) -> TriggeredStart:
        """Start an execution under a fixed id. Ticks are not limited: the schedule defines how often it starts."""
        if key is not None and await self._journal.accepted(execution) is not None:
            return TriggeredStart(execution, again=True)
        plan = await self._plans.plan(trigger.hash)
        await check_start(plan.definition, input)
        options = StartOptions(key=key, labels={"trigger": trigger.id})
        chosen = ChosenVersion(trigger.version, trigger.alias, trigger.scopes)
        record = self._launcher.new_record(plan, input, options, execution=execution, chosen=chosen)
        record = replace(record, principal=f"trigger:{trigger.id}")
        try:
            held = await self._limiter.held(plan) if limited else None
            accepted = await self._launcher.start(record, plan, held=held)
        except IdempotencyKeyExpiredError as expired:
            return TriggeredStart(expired.execution, again=True)
        except IdempotencyConflictError:  # the same delivery with other headers, or for another version
            return TriggeredStart(execution, again=True)
        return TriggeredStart(accepted.id)


def start_key(trigger: Trigger, delivery: str) -> str:
    """Return the id of the execution that a delivery starts."""
    return "h" + _digest(trigger.id, delivery, 15)


def _digest(trigger: str, name: str, size: int) -> str:
    return hashlib.blake2b(f"{trigger}\x1f{name}".encode(), digest_size=size).hexdigest()
