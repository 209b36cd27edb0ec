"""Settling: what was published and is not confirmed, what was delivered and is not acknowledged."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque

import msgspec

from rune.adapters.rabbitmq.errors import AmqpError, Broken, BrokerAway, Nacked, Unroutable
from rune.adapters.rabbitmq.frames import ack_command


class Batch(msgspec.Struct, gc=False):
    """Messages that somebody waits for together."""

    future: asyncio.Future[None]
    left: int
    error: AmqpError | None = None


class Confirms:
    """Which published messages are still to be confirmed. Confirms may come out of order and many at once."""

    def __init__(self) -> None:
        self.last = 0
        self._waiting: dict[int, Batch] = {}
        self._marks: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self, batch: Batch | None) -> int:
        """The number of the message that is published next."""
        self.last += 1
        if batch is not None:
            self._waiting[self.last] = batch
        return self.last

    def settle(self, tag: int, *, multiple: bool, taken: bool) -> None:
        """The broker says what became of one message, or of all up to it."""
        if tag > self.last:
            raise Broken(503, f"message {tag} is confirmed and was never published")
        waiting = self._waiting
        if not multiple:
            batch = waiting.pop(tag, None)
            if batch is not None:
                self._one(batch, taken)
            return
        upto = tag or self.last
        while waiting:
            first = next(iter(waiting))
            if first > upto:
                return
            self._one(waiting.pop(first), taken)

    def _one(self, batch: Batch, taken: bool) -> None:
        batch.left -= 1
        if not taken and batch.error is None:
            batch.error = Nacked("the broker did not take a message")
        if batch.left == 0 and not batch.future.done():
            if batch.error is None:
                batch.future.set_result(None)
            else:
                batch.future.set_exception(batch.error)

    def returned(self, number: str, error: Unroutable) -> bool:
        """A message came back; its confirm follows. Whether somebody waits for it."""
        batch = self._waiting.get(int(number)) if number.isascii() and number.isdecimal() else None
        if batch is not None and batch.error is None:
            batch.error = error
        return batch is not None

    def overdue(self, now: float, deadline: float) -> bool:
        """Called now and then: gives up what has waited for the deadline. Whether there was any."""
        self._marks.append((now, self.last))
        upto = 0
        while self._marks and self._marks[0][0] <= now - deadline:
            upto = self._marks.popleft()[1]
        late = list(itertools.takewhile(lambda each: each <= upto, self._waiting))
        self._fail(late, BrokerAway(f"no confirm within {deadline:g} s", code="PUBLISH_DEADLINE"))
        return bool(late)

    def fail(self, error: AmqpError) -> None:
        """Nothing more will be confirmed."""
        self._fail(list(self._waiting), error)

    def _fail(self, numbers: list[int], error: AmqpError) -> None:
        for each in numbers:
            batch = self._waiting.pop(each)
            batch.left -= 1
            if not batch.future.done():
                batch.future.set_exception(error)


class Acks:
    """Acks of one turn of the loop, as few frames as possible: one for all below the first that is still in hands."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._held: dict[int, None] = {}  # in the order of their numbers
        self._now: list[int] = []

    def __len__(self) -> int:
        return len(self._held)

    def delivered(self, tag: int) -> None:
        self._held[tag] = None

    def add(self, tag: int) -> bool:
        """One more to acknowledge; whether it is the first of this turn. What is not in hands is let pass."""
        if tag not in self._held:
            return False
        del self._held[tag]
        self._now.append(tag)
        return len(self._now) == 1

    def other(self, tag: int) -> bool:
        """Settled otherwise; whether it was in hands."""
        if tag not in self._held:
            return False
        del self._held[tag]
        return True

    def frames(self) -> bytes:
        """What to send for all that came together."""
        now, self._now = self._now, []
        if not now:
            return b""
        first = next(iter(self._held), None)
        last = max(now)
        if first is None or last < first:
            return ack_command(self._channel, last, multiple=True)
        below = [tag for tag in now if tag < first]
        parts = [ack_command(self._channel, tag, multiple=False) for tag in now if tag > first]
        if below:
            parts.append(ack_command(self._channel, max(below), multiple=True))
        return b"".join(parts)
