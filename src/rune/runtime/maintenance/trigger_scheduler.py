"""Starts executions for triggers: schedules that are due, and webhook deliveries.

Each tick and each delivery has its own execution id, so it starts one execution however often it is tried. Any number
of trigger schedulers may run.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.schedules import ScheduleState, advance, next_start, started
from rune.core.start_keys import HOOK, TICK
from rune.errors import RuneError
from rune.nodes.control.schedule import next_tick
from rune.ports.clock import iso
from rune.ports.journal import (
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Journal,
    Missing,
    StoreUnavailableError,
)
from rune.ports.workflows import ChosenVersion, Trigger, TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher, StartOptions, new_execution_id
from rune.runtime.payloads import check_start
from rune.runtime.plan_cache import MissingNodeTypeError, PlanCache
from rune.runtime.services.start_limits import Limiter
from rune.runtime.services.workflows import TriggerService

log = logging.getLogger("rune.trigger_scheduler")

BATCH = 100
MAX_ROUNDS = 200
POLL_S = 1.0
"""The longest sleep: other processes create triggers, and clocks are adjusted."""

MAX_TROUBLE_CHARS = 500
POSTPONE_MS = 10_000
RECONCILE_PERIOD_S = 60.0


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


class TriggerScheduler:
    """Advances schedules. A tick is stored as starting, then started under a fixed id, then stored as started, so that
    after a crash in between the next scheduler completes it."""

    def __init__(
        self,
        store: TriggerStore,
        service: TriggerService,
        starts: TriggeredStarts,
        finisher: Finisher,
        backend: Backend,
    ) -> None:
        self._store = store
        self._service = service
        self._starts = starts
        self._finisher = finisher
        self._journal = backend.journal
        self._clock = backend.clock

    async def run(self) -> None:
        """Start due schedules until cancelled."""
        while True:
            delay = POLL_S
            try:
                await self.turn()
                due = await self._store.next_due()
                if due is not None:
                    delay = min(POLL_S, max(0.02, (due - self._clock.now()) / 1000))
            except StoreUnavailableError as error:
                log.warning("store unavailable: %s", error.message)
            except Exception:
                # An error in one schedule must not stop the others.
                log.exception("starting due schedules failed")
            await asyncio.sleep(delay)

    async def tidy(self) -> None:
        """Reconcile triggers with their workflows and drop expired deliveries, once a minute until cancelled."""
        while True:
            try:
                await self._service.reconcile()
                # Sleep first: a process that has just started writes nothing.
                await asyncio.sleep(RECONCILE_PERIOD_S)
                await self._store.forget_deliveries(self._clock.now())
            except StoreUnavailableError as error:
                log.warning("store unavailable, triggers are reconciled later: %s", error.message)
                await asyncio.sleep(POLL_S)
            except Exception:
                log.exception("reconciling triggers failed")
                await asyncio.sleep(RECONCILE_PERIOD_S)

    async def turn(self) -> int:
        """Process one batch of due triggers and return its size."""
        due = await self._store.due(self._clock.now(), BATCH)
        results = await asyncio.gather(*map(self._process, due), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error
        return len(due)

    async def _process(self, trigger: Trigger) -> None:
        try:
            await self._advance(trigger)
        except StoreUnavailableError:
            raise
        except MissingNodeTypeError as error:
            log.info("%s/%s is left to other schedulers: %s", trigger.workflow, trigger.node, error.message)
            await self._postpone(trigger.id)
        except Exception:
            log.exception("the schedule %s/%s is postponed", trigger.workflow, trigger.node)
            await self._postpone(trigger.id)

    async def _postpone(self, id: str) -> None:
        trigger = await self._store.find(id)
        if trigger is not None and trigger.due is not None:
            await self._store.put(replace(trigger, due=self._clock.now() + POSTPONE_MS))

    async def _advance(self, trigger: Trigger) -> None:
        """Start what is due until nothing is left or another scheduler has changed the trigger."""
        assert trigger.schedule is not None
        times = next_tick(trigger.schedule, trigger.anchor)
        for _ in range(MAX_ROUNDS):
            state = trigger.standing
            if trigger.enabled:
                running = state.last is not None and await self._is_running(state.last)
                state = advance(trigger.schedule, times, state, self._clock.now(), running=running)
            saved = await self._save(trigger, state, trigger.trouble)
            if saved is None or state.starting is None:
                return
            # crash here: the tick is stored in `starting`, and the next scheduler starts it
            execution, trouble = await self._start(saved, state.starting)
            missing = None if trouble is None else _missing(saved, state.starting, trouble)
            # crash here: the next scheduler starts the tick again under the same id, which has no effect
            saved = await self._save(saved, started(state, execution), _text(trouble), missing)
            if saved is None:
                return
            trigger = saved

    async def _save(
        self, trigger: Trigger, state: ScheduleState, trouble: str, missing: Missing | None = None
    ) -> Trigger | None:
        """Store a new state of the schedule, and the execution that it could not start. Return None if another
        scheduler has changed the trigger."""
        due = next_start(state, self._clock.now())
        if not trigger.enabled and state.starting is None:
            due = None
        if (state, due, trouble) == (trigger.standing, trigger.due, trigger.trouble):
            return trigger
        return await self._store.put(replace(trigger, standing=state, due=due, trouble=trouble), missing)

    async def _is_running(self, execution: str) -> bool:
        if await self._journal.end(execution) is not None:
            return False
        # An execution that retention has removed had ended.
        return await self._journal.accepted(execution) is not None

    async def _start(self, trigger: Trigger, tick: int) -> tuple[str | None, RuneError | None]:
        """Start a tick. Return the id of the execution, or None and the reason for it."""
        assert trigger.schedule is not None
        last = trigger.standing.last
        if trigger.schedule.overlap == "cancel" and last is not None and await self._is_running(last):
            error = Error("CANCELLED", "the next execution of its schedule was due")
            finish = FinishExecution("cancelled", error)
            await self._finisher.finish(last, finish, self._clock.now(), counted=False)
        try:
            return (await self._starts.tick(trigger, tick)).execution, None
        except (StoreUnavailableError, MissingNodeTypeError):
            raise
        except RuneError as error:
            log.warning("%s/%s was not started: %s", trigger.workflow, trigger.node, error.message)
            return None, error


def _text(trouble: RuneError | None) -> str:
    return "" if trouble is None else f"{trouble.code}: {trouble.message}"[:MAX_TROUBLE_CHARS]


def _missing(trigger: Trigger, tick: int, trouble: RuneError) -> Missing:
    """Return the execution that a tick could not start."""
    return Missing(
        name=f"{trigger.workflow}/{trigger.node}@{tick}",
        workflow=trigger.workflow,
        version=trigger.version,
        hash=trigger.hash,
        scopes=trigger.scopes,
        at=tick,
        node=trigger.node,
        code=trouble.code,
        message=f"not started at {iso(tick)}: {trouble.message}"[:MAX_TROUBLE_CHARS],
    )


def start_key(trigger: Trigger, delivery: str) -> str:
    """Return the id of the execution that a delivery starts."""
    return "h" + _digest(trigger.id, delivery, 15)


def _digest(trigger: str, name: str, size: int) -> str:
    return hashlib.blake2b(f"{trigger}\x1f{name}".encode(), digest_size=size).hexdigest()
