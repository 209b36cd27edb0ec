"""Batches concurrent requests: requests that arrive while a batch is in flight form the next batch.

A single request is sent at once. A thousand concurrent requests cost a few round trips and a few disk syncs instead of
a thousand. Stores of every kind use it, and so does the runtime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from rune.ports.journal import StoreUnavailableError

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
A = TypeVar("A")

LOOK_AHEAD_BATCHES = 4
"""How many batch sizes of pending requests are searched for requests that may be sent now."""


class SharedAnswer(Generic[A]):
    """One answer of a whole batch: the last caller that still waits gets it, the others get `rest`."""

    __slots__ = ("answer", "rest")

    def __init__(self, answer: A, rest: A) -> None:
        self.answer = answer
        self.rest = rest


Answers = Sequence[A | BaseException] | SharedAnswer[A]
Admits = Callable[[R], bool]
"""Adds a request to a batch and returns True, or returns False if the request must wait for a later batch."""


class Batcher(Generic[R, A]):
    """Sends requests in batches of at most `max_requests`, with up to `lanes` batches in flight.

    `send` returns one answer or exception per request; an exception that it raises reaches every caller of the batch.
    A request whose caller was cancelled before it is sent is left out. One that is submitted after `close`, or whose
    batch is cancelled, gets StoreUnavailableError.
    """

    def __init__(
        self,
        send: Callable[[Sequence[R]], Awaitable[Answers[A]]],
        *,
        max_requests: int,
        lanes: int = 1,
        linger: float = 0.0,
        new_batch: Callable[[], Admits[R]] | None = None,
        names: Callable[[R], Iterable[object]] | None = None,
    ) -> None:
        """`linger` is how many seconds a batch may wait for more requests when no caller needs the answer soon.

        `new_batch` returns the admission rule of one batch. `names` returns what a request writes: two batches in
        flight never share a name.
        """
        self._send = send
        self._max_requests = max_requests
        self._lanes = lanes
        self._linger = linger
        self._new_batch = new_batch
        self._names = names
        self._pending: deque[tuple[R, asyncio.Future[A]]] = deque()
        self._busy: set[object] = set()
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled: asyncio.Handle | None = None
        self._closed = False

    async def call(self, request: R) -> A:
        """Send a request and return its answer. A single request bypasses the batch: no task is created for it."""
        if self._in_flight or self._pending or self._closed or self._names is not None:
            return await self.submit(request)
        self._in_flight = 1
        try:
            answers = await self._send((request,))
        finally:
            self.land()
        return _only(answers)

    def submit(self, request: R) -> asyncio.Future[A]:
        """Queue a request, to be sent together with those of other callers; return the future of its answer."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if self._closed:
            self._interrupt(future, "the store was closed")
            return future
        self._pending.append((request, future))
        self._schedule()
        return future

    def _schedule(self) -> None:
        """Start a batch after all callers of this turn of the event loop have submitted."""
        if self._scheduled is None and self._pending and self._may_start():
            loop = asyncio.get_running_loop()
            if self._linger and not self._closed and len(self._pending) < self._max_requests:
                self._scheduled = loop.call_later(self._linger, self._start)
            else:
                self._scheduled = loop.call_soon(self._start)

    def _may_start(self) -> bool:
        return self._in_flight < self._lanes

    def _start(self) -> None:
        self._scheduled = None
        while self._in_flight < self._lanes:
            batch = self._next_batch()
            if not batch:
                break
            names: set[object] = set()
            if self._names is not None:
                names = {name for request, _ in batch for name in self._names(request)}
                self._busy |= names
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send_batch(batch, names))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._notify_if_idle()

    def _next_batch(self) -> list[tuple[R, asyncio.Future[A]]]:
        """Remove and return the pending requests that may be sent now, in order; the others keep their places."""
        admits = None if self._new_batch is None else self._new_batch()
        batch: list[tuple[R, asyncio.Future[A]]] = []
        waiting: list[tuple[R, asyncio.Future[A]]] = []
        remaining = self._max_requests * LOOK_AHEAD_BATCHES
        while self._pending and len(batch) < self._max_requests and remaining:
            remaining -= 1
            each = self._pending.popleft()
            if each[1].cancelled():
                continue
            admitted = self._is_free(each[0]) and (admits is None or admits(each[0]))
            (batch if admitted else waiting).append(each)
        self._pending.extendleft(reversed(waiting))
        return batch

    def _is_free(self, request: R) -> bool:
        return not self._busy or self._names is None or self._busy.isdisjoint(self._names(request))

    async def _send_batch(self, batch: list[tuple[R, asyncio.Future[A]]], names: set[object]) -> None:
        futures = [future for _, future in batch]
        try:
            _resolve(futures, await self._send([request for request, _ in batch]))
        except Exception as error:
            _resolve(futures, [error] * len(futures))
        finally:
            for future in futures:  # every future has its answer by now unless this task was cancelled
                self._interrupt(future, "cancelled while writing")
            self._busy -= names
            self.land()

    def land(self) -> None:
        """Note that a batch has its answer, and start the next."""
        self._in_flight -= 1
        if self._pending:
            self._schedule()
        else:
            self._notify_if_idle()

    def _notify_if_idle(self) -> None:
        """Called when a batch has its answer and when batches were started."""

    def _interrupt(self, future: asyncio.Future[A], reason: str) -> None:
        if not future.done():
            future.set_exception(StoreUnavailableError(reason))

    async def close(self) -> None:
        """Reject new requests and wait until every submitted request has its answer."""
        self._closed = True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        while self._tasks or self._pending:
            self._schedule()
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(0)


def _only(answers: Answers[A]) -> A:
    """Return the answer to a batch of one request."""
    answer = answers.answer if isinstance(answers, SharedAnswer) else answers[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _resolve(futures: Sequence[asyncio.Future[A]], answers: Answers[A]) -> None:
    if isinstance(answers, SharedAnswer):
        waiting = [future for future in futures if not future.done()]
        for future in waiting[:-1]:
            future.set_result(answers.rest)
        for future in waiting[-1:]:
            future.set_result(answers.answer)
        return
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class _KeyBatcher(Batcher[R, A]):
    """The batcher of one key. It is created while a single request that bypassed it is in flight, which its caller
    reports with `land`. Its next batches start together when none is in flight."""

    def __init__(
        self,
        send: Callable[[Sequence[R]], Awaitable[Answers[A]]],
        max_requests: int,
        lanes: int,
        on_idle: Callable[[], object],
    ) -> None:
        super().__init__(send, max_requests=max_requests, lanes=lanes)
        self._in_flight = 1
        self._on_idle = on_idle

    def _may_start(self) -> bool:
        return not self._in_flight

    def _notify_if_idle(self) -> None:
        if not self._in_flight and not self._pending:
            self._on_idle()


class KeyedBatcher(Generic[K, R, A]):
    """A batcher for each key: only requests of one key are sent together, and keys do not wait for each other."""

    def __init__(
        self,
        send: Callable[[K, Sequence[R]], Awaitable[Answers[A]]],
        *,
        max_requests: int,
        lanes: int = 1,
    ) -> None:
        self._send = send
        self._max_requests = max_requests
        self._lanes = lanes
        self._batchers: dict[K, Batcher[R, A] | None] = {}
        """None while a single request of the key is in flight and no other has arrived."""

    async def call(self, key: K, request: R) -> A:
        """Send a request and return its answer. A single request of a key bypasses the batch."""
        batchers = self._batchers
        if key in batchers:
            batcher = batchers[key]
            if batcher is None:
                batcher = batchers[key] = self._new_batcher(key)
            return await batcher.submit(request)
        batchers[key] = None
        try:
            answers = await self._send(key, (request,))
        finally:
            batcher = batchers[key]
            if batcher is None:
                del batchers[key]
            else:
                batcher.land()
        return _only(answers)

    def _new_batcher(self, key: K) -> Batcher[R, A]:
        forget = partial(self._batchers.pop, key, None)
        return _KeyBatcher(partial(self._send, key), self._max_requests, self._lanes, forget)
