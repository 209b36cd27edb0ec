"""Starts executions for schedules that are due. Any number of trigger schedulers may run."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.schedules import ScheduleState, advance, next_start, started
from rune.errors import RuneError
from rune.nodes.control.schedule import next_tick
from rune.ports.clock import iso
from rune.ports.journal import (
    Missing,
    StoreUnavailableError,
)
from rune.ports.workflows import Trigger, TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.runtime.services.triggered_starts import TriggeredStarts
from rune.runtime.services.workflows import TriggerService

log = logging.getLogger("rune.trigger_scheduler")

BATCH = 100
MAX_ROUNDS = 200
POLL_S = 1.0
"""The longest sleep: other processes create triggers, and clocks are adjusted."""

MAX_TROUBLE_CHARS = 500
POSTPONE_MS = 10_000
RECONCILE_PERIOD_S = 60.0


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
