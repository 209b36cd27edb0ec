"""Starts by triggers: each tick and each delivery under a name of its own, so that it starts one execution.

The ticker: starts what schedules are due. Any number of them may run; each tick is started once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.triggers import ScheduleState, advance, next_start, started
from rune.documents.loader import check_input
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.cron import next_tick
from rune.ports.journal import (
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Journal,
    StoreUnavailableError,
)
from rune.ports.triggers import Trigger, TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import Launcher, StartOptions, new_execution_id
from rune.runtime.plan_cache import MissingNodeTypeError, PlanCache
from rune.runtime.services.limits import Limiter
from rune.runtime.services.triggers import TriggerService


class TriggeredStart(msgspec.Struct, frozen=True):
    """An execution that a trigger started, now or before."""

    execution: str
    again: bool = False


class TriggeredStarts:
    """Starts executions on behalf of triggers."""

    def __init__(self, journal: Journal, plans: PlanCache, launcher: Launcher, limiter: Limiter) -> None:
        self._journal = journal
        self._plans = plans
        self._launcher = launcher
        self._limiter = limiter

    async def tick(self, trigger: Trigger, tick: int) -> TriggeredStart:
        """Start what was due at a moment."""
        at = datetime.fromtimestamp(tick / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        input = msgspec.json.encode({"scheduled_at": at})
        name = f"x{tick:012x}{_digest(trigger.id, str(tick), 7)}"
        return await self._start(trigger, input, name, f"tick:{trigger.id}:{tick}", limited=False)

    async def delivery(self, trigger: Trigger, delivery: str | None, input: bytes) -> TriggeredStart:
        """Start what a request asked for; one without a name is always another."""
        if delivery is None:
            return await self._start(trigger, input, new_execution_id(), None)
        name = start_key(trigger, delivery)
        return await self._start(trigger, input, name, f"hook:{trigger.id}:{name}")

    async def has_started(self, trigger: Trigger, delivery: str) -> bool:
        """Whether there is an execution of this delivery."""
        return await self._journal.accepted(start_key(trigger, delivery)) is not None

    async def _start(
        self, trigger: Trigger, input: bytes, execution: str, key: str | None, *, limited: bool = True
    ) -> TriggeredStart:
        """A tick is held to no limit: whoever wrote the schedule has said how often."""
        if key is not None and await self._journal.accepted(execution) is not None:
            return TriggeredStart(execution, again=True)
        plan = await self._plans.plan(trigger.hash)
        _, problems = check_input(plan.definition, input)
        if problems:
            raise InvalidDocumentError(tuple(problems))
        try:
            accepted = await self._launcher.start(
                plan,
                input,
                StartOptions(key=key, labels={"trigger": trigger.id}),
                execution=execution,
                principal=f"trigger:{trigger.id}",
                held=await self._limiter.held(plan) if limited else None,
            )
        except IdempotencyKeyExpiredError as spent:
            return TriggeredStart(spent.execution, again=True)
        except IdempotencyConflictError:  # the same one once more, with other headers, or of another version
            return TriggeredStart(execution, again=True)
        return TriggeredStart(accepted.id)


def start_key(trigger: Trigger, delivery: str) -> str:
    """The id of the execution that a delivery starts."""
    return "h" + _digest(trigger.id, delivery, 15)


def _digest(trigger: str, what: str, size: int) -> str:
    return hashlib.blake2b(f"{trigger}\x1f{what}".encode(), digest_size=size).hexdigest()


log = logging.getLogger("rune.ticker")

BATCH = 100
MAX_ROUNDS = 200
POLL_S = 1.0
"""How long it sleeps at most, in s: triggers are made by other processes, and clocks are put right."""

POSTPONE_MS = 10_000
RECONCILE_PERIOD_S = 60.0  # s


class TriggerScheduler:
    """Moves schedules on. What is to be started is written down first, then it is started under its own name, then
    that is written down: whoever dies in between leaves it to the next one."""

    def __init__(
        self,
        store: TriggerStore,
        book: TriggerService,
        starts: TriggeredStarts,
        endings: Finisher,
        backend: Backend,
    ) -> None:
        self._store = store
        self._book = book
        self._starts = starts
        self._endings = endings
        self._journal = backend.journal
        self._clock = backend.clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = POLL_S
            try:
                await self.turn()
                due = await self._store.next_due()
                if due is not None:
                    pause = min(POLL_S, max(0.02, (due - self._clock.now()) / 1000))
            except StoreUnavailableError as away:
                log.warning("the store is away: %s", away.message)
            except Exception:
                log.exception(
                    "the ticker stumbled"
                )  # one schedule's trouble must not stop the others for good
            await asyncio.sleep(pause)

    async def tidy(self) -> None:
        """Publish what was left unpublished, and drop what is no longer good, once a minute until cancelled."""
        while True:
            try:
                await self._book.reconcile()
                await asyncio.sleep(RECONCILE_PERIOD_S)  # first: who has only just come has nothing to write
                await self._store.forget_deliveries(self._clock.now())
            except StoreUnavailableError as away:
                log.warning("triggers are not tidied up: %s", away.message)
                await asyncio.sleep(POLL_S)
            except Exception:
                log.exception("triggers are not tidied up")
                await asyncio.sleep(RECONCILE_PERIOD_S)

    async def turn(self) -> int:
        """Look at what is due now; how many there were."""
        found = await self._store.due(self._clock.now(), BATCH)
        ended = await asyncio.gather(*map(self._looked_at, found), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        return len(found)

    async def _looked_at(self, trigger: Trigger) -> None:
        try:
            await self._attend(trigger)
        except StoreUnavailableError:
            raise
        except MissingNodeTypeError as lacking:
            log.info("%s/%s is left to others: %s", trigger.workflow, trigger.node, lacking.message)
            await self._put_off(trigger.id)
        except Exception:
            log.exception("the schedule %s/%s is put off", trigger.workflow, trigger.node)
            await self._put_off(trigger.id)

    async def _put_off(self, id: str) -> None:
        trigger = await self._store.find(id)
        if trigger is not None and trigger.due is not None:
            await self._store.put(replace(trigger, due=self._clock.now() + POSTPONE_MS))

    async def _attend(self, trigger: Trigger) -> None:
        """Go on until nothing is left to do now, or somebody else does it."""
        assert trigger.schedule is not None
        times = next_tick(trigger.schedule, trigger.anchor)
        for _ in range(MAX_ROUNDS):
            standing = trigger.standing
            if trigger.enabled:
                running = standing.last is not None and await self._runs(standing.last)
                standing = advance(trigger.schedule, times, standing, self._clock.now(), running=running)
            moved = await self._moved(trigger, standing, trigger.trouble)
            if moved is None or standing.starting is None:
                return
            # crash here: the tick stands in `starting`, and whoever looks next starts it
            execution, trouble = await self._start(moved, standing.starting)
            # crash here: it is started once more, under the same name, which is nothing
            done = await self._moved(moved, started(standing, execution), trouble)
            if done is None:
                return
            trigger = done

    async def _moved(self, trigger: Trigger, standing: ScheduleState, trouble: str) -> Trigger | None:
        due = next_start(standing, self._clock.now())
        if not trigger.enabled and standing.starting is None:
            due = None
        if (standing, due, trouble) == (trigger.standing, trigger.due, trigger.trouble):
            return trigger
        return await self._store.put(replace(trigger, standing=standing, due=due, trouble=trouble))

    async def _runs(self, execution: str) -> bool:
        if await self._journal.end(execution) is not None:
            return False
        return await self._journal.accepted(execution) is not None  # what was removed has ended

    async def _start(self, trigger: Trigger, tick: int) -> tuple[str | None, str]:
        """The execution, or why there is none."""
        assert trigger.schedule is not None
        last = trigger.standing.last
        if trigger.schedule.overlap == "cancel" and last is not None and await self._runs(last):
            error = Error("CANCELLED", "the next one of its schedule was due")
            await self._endings.finish(last, FinishExecution("cancelled", error), self._clock.now())
        try:
            return (await self._starts.tick(trigger, tick)).execution, ""
        except (StoreUnavailableError, MissingNodeTypeError):
            raise
        except RuneError as error:
            log.warning("%s/%s starts nothing: %s", trigger.workflow, trigger.node, error.message)
            return None, f"{error.code}: {error.message}"[:500]
