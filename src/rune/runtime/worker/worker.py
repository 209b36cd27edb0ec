"""Lacking: node types that this process does not have. Others may; if nobody does for a while, the execution fails.

Failures of the engine itself, counted per message.

The worker: slots that take a delivery each and see it through.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path
from rune.errors import RuneError
from rune.ports.journal import NewerFormatError, StoreUnavailableError
from rune.ports.processes import ProcessRegistry
from rune.ports.queue import Delivery
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.runtime.worker.executor import Executor, UnservableTokenError
from rune.runtime.worker.fair_share import FairShare

MISSING_TYPE_TIMEOUT_S = 60.0  # s without any worker that has the type
MAX_TRACKED = 10_000


class MissingTypeTracker:
    """Since when nobody has been seen who has a type, per execution and type. Without a fleet there are no others to
    wait for, and whoever owns the file next may have it: nothing fails."""

    def __init__(self, fleet: ProcessRegistry | None) -> None:
        self._fleet = fleet
        self._since: dict[tuple[str, str], float] = {}

    async def expired(self, execution: str, type: str) -> bool:
        """Whether it has been missed for too long."""
        if self._fleet is None:
            return False
        key = (execution, type)
        if any(type in each.types for each in await self._fleet.list() if "worker" in each.roles):
            self._since.pop(key, None)
            return False
        now = time.monotonic()
        if len(self._since) >= MAX_TRACKED:
            self._since.clear()
        return now - self._since.setdefault(key, now) >= MISSING_TYPE_TIMEOUT_S


REDELIVERY_DELAYS_S = (5.0, 25.0, 125.0)


class RedeliveryBackoff:
    """How often a message made the engine fail, and when it is tried again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, Path], int] = {}

    def delay(self, delivery: Delivery) -> float | None:
        """Seconds until the next try; None when there were enough."""
        key = (delivery.execution, *delivery.token.key)
        count = self._counts.get(key, 0)
        if count >= len(REDELIVERY_DELAYS_S):
            del self._counts[key]
            return None
        self._counts[key] = count + 1
        return REDELIVERY_DELAYS_S[count]

    def forget(self, delivery: Delivery) -> None:
        """It went well."""
        if self._counts:
            self._counts.pop((delivery.execution, *delivery.token.key), None)


log = logging.getLogger("rune.worker")

STORE_RETRY_DELAY_S = 0.5
ERROR_DELAY_S = 1.0  # s: somebody else may be there who has the node type, or a newer Rune


class Worker:
    """Runs attempts. An outage is nobody's fault; an exception is its message's."""

    def __init__(self, attempt: Executor, endings: Finisher, backend: Backend, slots: int) -> None:
        self._attempt = attempt
        self._endings = endings
        self._queue = backend.queue
        self._clock = backend.clock
        self._lacking = MissingTypeTracker(backend.fleet)
        self._slots = slots
        self._share = FairShare(slots)
        self._failures = RedeliveryBackoff()
        self._idle = asyncio.Event()
        self._busy = 0
        self._stopping = False

    @property
    def busy(self) -> int:
        """How many deliveries are in its hands."""
        return self._busy

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._slots):
                group.create_task(self._slot())
            group.create_task(self._share.run())

    def _stops(self) -> bool:
        return self._stopping

    async def _slot(self) -> None:
        while not self._stops():
            delivery = await self._queue.receive()
            if self._stops():  # this slot was waiting when the stop came
                with suppress(
                    StoreUnavailableError
                ):  # then it is handed out again once nobody has renewed it for a while
                    await self._queue.requeue(delivery)
                return
            self._busy += 1
            try:
                await self._serve_slot(delivery)
            finally:
                self._busy -= 1
                if self._busy == 0:
                    self._idle.set()

    async def _serve_slot(self, delivery: Delivery) -> None:
        if not delivery.token.path:
            self._share.note_other(delivery.execution, time.monotonic())
            await self._handle(delivery)
            return
        await self._share.acquire(delivery.execution)
        try:
            await self._handle(delivery)
        finally:
            self._share.release(delivery.execution)

    async def _handle(self, delivery: Delivery) -> None:
        try:
            if await self._attempt.handle(delivery):
                self._failures.forget(delivery)
        except StoreUnavailableError as away:
            log.warning("the store is away, holding work: %s", away.message)
            await self._requeue(delivery, STORE_RETRY_DELAY_S)
        except MissingNodeTypeError as lack:
            await self._missing_type(delivery, lack)
        except NewerFormatError as newer:
            log.info("%s is left to others: %s", delivery.execution, newer.message)
            await self._requeue(delivery, ERROR_DELAY_S)
        except UnservableTokenError as error:
            await self._dead_letter(delivery, error.code, error.message)
        except Exception as error:
            await self._failed(delivery, error)

    async def _requeue(self, delivery: Delivery, delay: float) -> None:
        """The queue may be what is away: then the delivery stays in our hands until it is back."""
        while True:
            try:
                await self._queue.requeue(delivery, delay)
            except StoreUnavailableError as away:
                log.warning("the queue is away, keeping work: %s", away.message)
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            except Exception:
                log.exception("%s is left to its timers", delivery.execution)
                return
            else:
                return

    async def _missing_type(self, delivery: Delivery, lack: MissingNodeTypeError) -> None:
        """Somebody else may have the node type; if nobody has had it for long, the execution fails instead of waiting
        for ever."""
        try:
            hopeless = await self._lacking.expired(delivery.execution, lack.type)
        except StoreUnavailableError:
            hopeless = False
        if not hopeless:
            log.info("%s is left to others: %s", delivery.execution, lack.message)
            await self._requeue(delivery, ERROR_DELAY_S)
            return
        message = f"no worker has had the node type `{lack.type}` for {MISSING_TYPE_TIMEOUT_S:.0f} s"
        await self._fail_execution(delivery, Error("UNKNOWN_TYPE", message, {"type": lack.type}, True))

    async def _failed(self, delivery: Delivery, error: Exception) -> None:
        """The engine itself failed on one message: again after a while; in the end the execution fails, never hangs."""
        delay = self._failures.delay(delivery)
        name = f"{delivery.execution} {delivery.token.node}@{delivery.token.path}"
        if delay is not None:
            log.error("engine error on %s, again in %s s", name, delay, exc_info=error)
            await self._requeue(delivery, delay)
            return
        log.error("engine error on %s, given up", name, exc_info=error)
        code = error.code if isinstance(error, RuneError) else type(error).__name__
        message = f"the engine could not handle {name}: {code}: {error}"
        await self._fail_execution(delivery, Error("DEAD_LETTERED", message, {"node": name}, True))

    async def _fail_execution(self, delivery: Delivery, failure: Error) -> None:
        """End the execution as failed."""
        try:
            await self._endings.finish(
                delivery.execution, FinishExecution("failed", failure), self._clock.now()
            )
        except StoreUnavailableError as away:
            log.warning("the store is away, %s is ended later: %s", delivery.execution, away.message)
            await self._requeue(delivery, STORE_RETRY_DELAY_S)
        except Exception:
            # Nothing is known of it, so nothing can be ended; if something is, the sweeper sends it again.
            log.exception("%s could not be ended", delivery.execution)
            await self._queue.ack(delivery)
        else:
            await self._dead_letter(delivery, failure.code, failure.message)

    async def _dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Nobody will serve it any more. Where the queue is away it comes again, and is found wanting again."""
        with suppress(StoreUnavailableError):
            await self._queue.dead_letter(delivery, code, message)

    async def drain(self, grace: float) -> None:
        """Take nothing more; let what runs finish within the grace period."""
        self._stopping = True
        self._idle.clear()
        if self._busy:
            try:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("%d nodes still run after %s s and are left to their leases", self._busy, grace)
