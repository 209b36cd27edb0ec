"""What could not be sent in time: kept for a while, and sent as soon as the broker takes messages again.

Nobody may rely on it: whoever sent it was told that the broker is away, and what is dropped here, or is in a process
that dies, is sent again from the state, a minute later. It spares executions that minute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from rune.adapters.rabbitmq.channel import Outgoing
from rune.adapters.rabbitmq.errors import AmqpError
from rune.adapters.rabbitmq.publisher import Publisher

MOST = 10_000
MOST_BYTES = 16 * 1024 * 1024
TOGETHER = 100
PATIENCE = 60.0  # s of waiting for a connection, before it is asked for again
PAUSE = 0.5
HOPELESS = frozenset({"NO_ROUTE", "ACCESS_REFUSED", "NOT_ALLOWED", "PRECONDITION_FAILED"})
"""What will not be better when the broker is back: no such queue, no right, too long."""


class Unsent:
    """The newest messages that the publisher was not rid of."""

    def __init__(self, publisher: Publisher, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._publisher = publisher
        self._most = most
        self._most_bytes = most_bytes
        self._kept: deque[Outgoing] = deque()
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, messages: Sequence[Outgoing], error: AmqpError) -> None:
        """Send them later, unless that is hopeless; the oldest give way if there are too many."""
        if error.code in HOPELESS:
            return
        self._kept.extend(messages)
        self._bytes += sum(len(each[2]) for each in messages)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._bytes -= len(self._kept.popleft()[2])
        if self._kept and self._sending is None:
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._sending = None

    async def _send(self) -> None:
        while self._kept:
            batch = [self._kept.popleft() for _ in range(min(TOGETHER, len(self._kept)))]
            self._bytes -= sum(len(each[2]) for each in batch)
            try:
                await self._publisher.link.up(PATIENCE)
                await self._publisher.publish(batch)
            except AmqpError as error:
                if error.code not in HOPELESS:
                    self._kept.extendleft(reversed(batch))
                    self._bytes += sum(len(each[2]) for each in batch)
                    await asyncio.sleep(PAUSE)

    async def close(self) -> None:
        """What is still kept is dropped."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
