"""The worker: slots that each receive a delivery and pass it to the executor. Their number grows with the load, up to a
limit.

A delivery that cannot be processed is requeued, retried with growing delays, or dead-lettered. It never hangs: an
execution whose token keeps failing ends as failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.errors import RuneError
from rune.nodes.endings import is_running
from rune.ports.journal import NewerFormatError, StoreUnavailableError, UnknownExecutionError
from rune.ports.processes import ProcessRegistry
from rune.ports.queue import Delivery
from rune.ports.state import Claim, KeptToken
from rune.runtime.backend import Backend
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.runtime.worker.executor import Executor, MayGoOn, UnservableTokenError
from rune.runtime.worker.fair_share import FairShare
from rune.telemetry.logs import LOG_CONTEXT, NO_CONTEXT

log = logging.getLogger("rune.worker")

STORE_RETRY_DELAY_S = 0.5
ERROR_DELAY_S = 1.0  # until another worker, which has the node type or a newer version, may receive the token
REDELIVERY_DELAYS_S = (5.0, 25.0, 125.0)
MISSING_TYPE_TIMEOUT_S = 60.0
MAX_TURN_S = 0.25
"""How long a delivery may keep its slot for successors while no other slot is free, in a worker with few slots."""

TURN_PER_SLOT_S = 0.004
"""The same for each slot of a worker with many: one of them becomes free every 4 ms, whatever their number."""

MAX_TRACKED_TYPES = 10_000
FIRST_SLOTS = 16  # served from the beginning; a worker that runs little does not pay for the others


class Worker:
    """Runs the executor in its slots. An unavailable store is retried without limit; any other exception is counted
    against the delivery that raised it."""

    def __init__(self, executor: Executor, finisher: Finisher, backend: Backend, slots: int) -> None:
        self._executor = executor
        self._finisher = finisher
        self._queue = backend.queue
        self._journal = backend.journal
        self._clock = backend.clock
        self._missing_types = MissingTypeTracker(backend.processes)
        self._slots = slots
        self._share = FairShare(slots)
        self._idle = asyncio.Event()
        self._busy = 0
        self._served = 0
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def busy(self) -> int:
        """The number of deliveries in progress."""
        return self._busy

    async def run(self) -> None:
        """Serve the slots until cancelled."""
        self._task = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._serve_slots(min(FIRST_SLOTS, self._slots))
            group.create_task(self._share.run())

    def _serve_slots(self, count: int) -> None:
        assert self._group is not None, "the worker runs"
        self._served += count
        for _ in range(count):
            self._group.create_task(self._serve_slot())

    def _is_stopping(self) -> bool:
        return self._stopping

    async def _serve_slot(self) -> None:
        task = asyncio.current_task()
        while not self._is_stopping():
            delivery = await self._queue.receive()
            if self._is_stopping():
                # The slot was waiting when the stop came. If requeueing fails, the queue delivers the token again
                # once it has not been renewed for a while.
                with suppress(StoreUnavailableError):
                    await self._queue.requeue(delivery)
                return
            self._busy += 1
            if self._busy == self._served < self._slots:
                self._serve_slots(min(self._served, self._slots - self._served))
            try:
                await self._handle_fairly(delivery)
            except (GeneratorExit, asyncio.CancelledError) as error:
                if self._ends_slot(error, task):
                    raise
                await self._handle_ended_task(delivery, error)
            except Exception:
                # An error here would end the worker, and each worker that receives the delivery after it.
                log.exception(
                    "a delivery of %s could not be handled; its lease will expire", delivery.execution
                )
            finally:
                LOG_CONTEXT.set(NO_CONTEXT)
                self._busy -= 1
                if self._busy == 0:
                    self._idle.set()

    def _ends_slot(self, error: BaseException, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the worker stops or its coroutine is closed, as opposed to a node that cancelled its own task
        or awaited a future with a GeneratorExit."""
        if isinstance(error, GeneratorExit):
            return not is_running(task)
        return self._task is None or self._task.cancelling() > 0

    async def _handle_ended_task(self, delivery: Delivery, error: BaseException) -> None:
        """Count what ended the task of a slot against the delivery, and keep the slot."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        try:
            await self._handle_engine_error(delivery, error)
        except Exception:
            log.exception("a delivery of %s could not be handled; its lease will expire", delivery.execution)

    async def _handle_fairly(self, delivery: Delivery) -> None:
        """Handle a delivery; an item of a fan-out waits for its share of the slots first."""
        if not delivery.token.path:
            self._share.note_other(delivery.execution, time.monotonic())
            await self._handle(delivery)
            return
        await self._share.acquire(delivery.execution)
        try:
            await self._handle_item(delivery)
        finally:
            self._share.release(delivery.execution)

    async def _handle_item(self, delivery: Delivery) -> None:
        """Handle an item; if its nodes are pure, together with others that the queue has at hand."""
        chunks = self._executor.chunks
        limit = chunks.limit(delivery, shared=self._share.shared(time.monotonic()))
        more: list[Delivery] = []
        if limit > 1 and not self._stopping:
            with suppress(StoreUnavailableError):
                more = await self._queue.receive_more(delivery, limit - 1)
        if not more:
            await self._handle(delivery)
            return
        singles = await chunks.handle([delivery, *more])
        if singles:
            await asyncio.gather(*(self._handle(*single) for single in singles))

    async def _handle(self, delivery: Delivery, claim: Claim | None = None) -> None:
        """Handle a delivery, and then each successor that was kept for this worker."""
        began = time.monotonic()
        turn = max(MAX_TURN_S, TURN_PER_SLOT_S * self._slots)

        def may_go_on() -> bool:
            free = self._busy < self._slots or time.monotonic() - began < turn
            return free and not self._stopping

        kept_token = await self._handle_token(delivery, claim, may_go_on)
        while kept_token is not None:
            next_delivery = Delivery(delivery.execution, kept_token.claim.token, kept_token.tag)
            kept_token = await self._handle_token(next_delivery, kept_token.claim, may_go_on)

    async def _handle_token(
        self, delivery: Delivery, claim: Claim | None, may_go_on: MayGoOn
    ) -> KeptToken | None:
        try:
            return await self._executor.handle(delivery, claim, may_go_on)
        except StoreUnavailableError as error:
            log.warning("store unavailable, holding work: %s", error.message)
            with suppress(Exception):
                # Otherwise the lease expires.
                await self._executor.requeue(delivery)
            await self._requeue(delivery, STORE_RETRY_DELAY_S)
        except UnservableTokenError as error:
            await self._dead_letter(delivery, error.code, error.message)
        except Exception as error:
            if await self._has_ended(delivery.execution):
                await self._queue.ack(delivery)
            else:
                await self._handle_failure(delivery, error)
        return None

    async def _has_ended(self, execution: str) -> bool:
        """Return whether an execution is known to have ended, so that none of its tokens runs any more."""
        try:
            return await self._journal.end(execution) is not None
        except RuneError:
            return False

    async def _handle_failure(self, delivery: Delivery, error: Exception) -> None:
        match error:
            case MissingNodeTypeError():
                await self._handle_missing_type(delivery, error)
            case NewerFormatError():
                _log_left(delivery.execution, error)
                await self._requeue(delivery, ERROR_DELAY_S)
            case _:
                await self._handle_engine_error(delivery, error)

    async def _requeue(self, delivery: Delivery, delay: float) -> None:
        """Return a delivery to the queue. While the queue is unavailable the worker keeps it and retries."""
        while True:
            try:
                await self._queue.requeue(delivery, delay)
            except StoreUnavailableError as error:
                log.warning("queue unavailable, keeping work: %s", error.message)
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            except Exception:
                log.exception("%s could not be requeued; its lease will expire", delivery.execution)
                return
            else:
                return

    async def _handle_missing_type(self, delivery: Delivery, error: MissingNodeTypeError) -> None:
        """Leave the token to a worker that has its node type; fail the execution once no worker has had it for long."""
        try:
            expired = await self._missing_types.expired(delivery.execution, error.type)
        except StoreUnavailableError:
            expired = False
        if not expired:
            _log_left(delivery.execution, error)
            await self._requeue(delivery, ERROR_DELAY_S)
            return
        message = f"no worker has had the node type `{error.type}` for {MISSING_TYPE_TIMEOUT_S:.0f} s"
        await self._fail_execution(delivery, Error("UNKNOWN_TYPE", message, {"type": error.type}, True))

    async def _handle_engine_error(self, delivery: Delivery, error: BaseException) -> None:
        """Retry a delivery on which the engine itself failed; after the last retry, fail the execution."""
        name = f"{delivery.execution} {delivery.token.node}@{delivery.token.path}"
        try:
            count = await self._count_engine_error(delivery)
        except Exception as counting_error:
            log.error(
                "engine error on %s, which could not be counted: %s", name, counting_error, exc_info=error
            )
            await self._requeue(delivery, ERROR_DELAY_S)
            return
        if count == 0:
            log.error("engine error on %s, which another worker has taken over", name, exc_info=error)
            await self._queue.ack(delivery)
            return
        if count <= len(REDELIVERY_DELAYS_S):
            delay = REDELIVERY_DELAYS_S[count - 1]
            log.error("engine error %d on %s, retrying in %s s", count, name, delay, exc_info=error)
            await self._requeue(delivery, delay)
            return
        log.error("engine error on %s, giving up", name, exc_info=error)
        code = error.code if isinstance(error, RuneError) else type(error).__name__
        message = f"the engine could not handle {name}: {code}: {error}"
        await self._fail_execution(delivery, Error("DEAD_LETTERED", message, {"node": name}, True))

    async def _count_engine_error(self, delivery: Delivery) -> int:
        """Count an engine error with the token in the state, where every worker sees it; return their number."""
        delays = [round(delay * 1000) for delay in REDELIVERY_DELAYS_S]
        return await self._executor.requeue(delivery, delays or [0])

    async def _fail_execution(self, delivery: Delivery, failure: Error) -> None:
        try:
            end = await self._finisher.finish(
                delivery.execution, FinishExecution("failed", failure), self._clock.now(), counted=False
            )
        except StoreUnavailableError as error:
            log.warning("store unavailable, %s is ended later: %s", delivery.execution, error.message)
            await self._requeue(delivery, STORE_RETRY_DELAY_S)
        except UnknownExecutionError as error:
            await self._dead_letter(delivery, "UNKNOWN_EXECUTION", str(error))
        except Exception:
            # The scheduler resends the token.
            log.exception("%s could not be ended", delivery.execution)
            await self._queue.ack(delivery)
        else:
            if end.error != failure:  # it had ended already
                await self._queue.ack(delivery)
            else:
                await self._dead_letter(delivery, failure.code, failure.message)

    async def _dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Dead-letter a delivery. If the queue is unavailable, the token is delivered and rejected again."""
        with suppress(StoreUnavailableError):
            await self._queue.dead_letter(delivery, code, message)

    async def drain(self, grace: float) -> None:
        """Receive nothing more and wait up to `grace` seconds for running nodes to finish."""
        self._stopping = True
        self._idle.clear()
        if self._busy:
            try:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("%d nodes still running after %s s; their leases will expire", self._busy, grace)


class MissingTypeTracker:
    """Tracks, per execution and node type, since when no worker has offered the type.

    Without a process registry there are no other workers to wait for, and the next owner of the database file may have
    the type, so nothing expires.
    """

    def __init__(self, registry: ProcessRegistry | None) -> None:
        self._registry = registry
        self._since: dict[tuple[str, str], float] = {}

    async def expired(self, execution: str, type: str) -> bool:
        """Return whether no worker has offered the type for MISSING_TYPE_TIMEOUT_S."""
        if self._registry is None:
            return False
        key = (execution, type)
        if any(type in process.types for process in await self._registry.list() if "worker" in process.roles):
            self._since.pop(key, None)
            return False
        now = time.monotonic()
        if len(self._since) >= MAX_TRACKED_TYPES:
            self._since.clear()
        return now - self._since.setdefault(key, now) >= MISSING_TYPE_TIMEOUT_S


def _log_left(execution: str, error: RuneError) -> None:
    """Log that an execution is left to other workers: once for many with the same reason."""
    log.info("%s is left to other workers: %s", execution, error.message, extra={"cause": error.message})
