"""Lists, requeues and discards dead letters of the broker.

A worker that crashes costs every message it held one delivery, so on quorum queues innocent messages reach the delivery
limit together with the one that crashes workers. They are requeued automatically a few times: the state counts the
claims of each token and fails the execution whose node really crashes workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.errors import AmqpError
from rune.adapters.rabbitmq.amqp.frames import Message, MessageProperties
from rune.adapters.rabbitmq.queue import MARK_HEADER
from rune.adapters.rabbitmq.topology import Topology
from rune.codec.messages import execution_of
from rune.ports.queue import QueueDeadLetter, letter_id

log = logging.getLogger("rune.rabbitmq")

_T = TypeVar("_T")

RETURN_TIMEOUT_S = 2.0
SEARCH_TIMEOUT_S = 5.0
"""For how long a letter is searched: a process that checks thousands of letters holds all of them for seconds."""
RETRY_DELAY_S = 0.05
MAX_REQUEUES = 5
BATCH_SIZE = 50
DELIVERY_LIMIT = "delivery_limit"
CHECK_PERIOD_S = 15.0
MAX_UNCHANGED_CHECKS = 20
"""After this many checks with an unchanged number of letters they are read nevertheless."""


def read_dead_letter(message: Message) -> QueueDeadLetter:
    """Return the dead letter that a message holds."""
    headers = message.headers
    died = str(headers.get("x-first-death-reason", ""))
    code = str(headers.get("rune-code", died.upper() or "UNKNOWN"))
    reason = str(headers.get("rune-reason", f"the broker gave it up: {died}" if died else "no reason given"))
    queue = str(headers.get("rune-queue", headers.get("x-first-death-queue", message.routing_key)))
    rescues = headers.get("rune-rescues", 0)
    at = _died_at(message, headers)
    return QueueDeadLetter(
        # The broker marks none: what it gave up within a second with the same content shares an id.
        id=letter_id(queue, code, message.body, str(headers.get(MARK_HEADER, at))),
        code=code,
        reason=reason,
        queue=queue,
        execution=execution_of(message.body),
        body=message.body,
        at=at,
        rescues=rescues if isinstance(rescues, int) else 0,
    )


def _died_at(message: Message, headers: dict[str, Any]) -> int | None:
    """Return when a message became a dead letter: its timestamp if a worker rejected it, else the broker's time."""
    try:
        found = message.properties.timestamp if "rune-code" in headers else headers["x-death"][0]["time"]
        return None if found is None else round(found.timestamp() * 1000)
    except Exception:
        # Another program wrote these headers.
        return None


class DeadLetters:
    """The dead letter queue. Requires the rights of the role `master`.

    A reader holds letters until it returns them, and another one does not see them meanwhile. The operations of a
    process therefore follow one another: two requests at once would show different letters. Each returns what it holds
    and waits until the broker has it back, because a quorum queue has it only a moment later. One that does not find
    its letter tries again for a while, because another process may hold it.
    """

    def __init__(self, url: str, topology: Topology) -> None:
        self._url = url
        self._topology = topology
        self._lock = asyncio.Lock()
        self._held: dict[int, None] = {}  # tags of the letters that the current operation has read

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[Channel]:
        """Open a channel to read letters, after the other operations of this process."""
        async with self._lock, self._open() as channel:
            self._held.clear()
            yield channel
            await self._return(channel)

    async def _return(self, channel: Channel) -> None:
        """Return the letters that were read and kept, and wait until they can be read again."""
        if channel.error is not None or not self._held:
            return
        before = await self._length(channel)
        for tag in self._held:
            channel.nack(tag, requeue=True)
        deadline = asyncio.get_running_loop().time() + RETURN_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if await self._length(channel) >= before + len(self._held):
                return
            await asyncio.sleep(RETRY_DELAY_S)

    async def _until_found(self, look: Callable[[], Awaitable[_T]]) -> _T:
        """Return what a search finds; one that finds nothing is repeated for a while."""
        deadline = asyncio.get_running_loop().time() + SEARCH_TIMEOUT_S
        while True:
            found = await look()
            if found or asyncio.get_running_loop().time() > deadline:
                return found
            await asyncio.sleep(RETRY_DELAY_S)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Channel]:
        """Open a channel; unacknowledged messages return to the queue when it is closed."""
        connection = await connect(self._url, name="dead letters")
        try:
            channel = await connection.channel()
            await channel.confirm()
            yield channel
        finally:
            await connection.close()

    async def list(self, limit: int = 100) -> list[QueueDeadLetter]:
        """Return dead letters, oldest first."""
        found: list[QueueDeadLetter] = []
        async with self._read() as channel:
            async for message in self._messages(channel, limit):
                found.append(read_dead_letter(message))
        return found

    async def find(self, letter: str) -> QueueDeadLetter | None:
        """Return a letter with this id. Reads letters until it is found."""
        return await self._until_found(lambda: self._find(letter))

    async def _find(self, letter: str) -> QueueDeadLetter | None:
        async with self._read() as channel:
            async for message in self._messages(channel, await self._length(channel)):
                found = read_dead_letter(message)
                if found.id == letter:
                    return found
        return None

    async def _length(self, channel: Channel) -> int:
        """Return the number of letters that no consumer holds."""
        return (await channel.declare_queue(self._topology.dead, passive=True)).message_count or 0

    async def _messages(self, channel: Channel, most: int) -> AsyncIterator[Message]:
        """Yield letters, oldest first. Several are requested at once: a round trip each would take minutes for 100,000
        letters."""
        for start in range(0, most, BATCH_SIZE):
            size = min(BATCH_SIZE, most - start)
            found = await asyncio.gather(*(channel.get(self._topology.dead) for _ in range(size)))
            messages = [each for each in found if each is not None]
            self._held |= dict.fromkeys(each.tag for each in messages)
            for message in messages:
                yield message
            if len(messages) < size:
                return

    async def count(self) -> int:
        """Return the number of dead letters that no consumer holds."""
        async with self._open() as channel:
            return await self._length(channel)

    async def requeue(self, letter: str) -> int:
        """Send the letters with this id to their original queue again and return how many."""
        return await self._until_found(lambda: self._each(lambda each: each.id == letter, self._send))

    async def discard(self, letter: str) -> int:
        """Delete the letters with this id and return how many."""
        return await self._until_found(lambda: self._each(lambda each: each.id == letter, None))

    async def requeue_innocent(self) -> int:
        """Requeue letters that only exceeded the delivery limit and return how many."""

        def innocent(letter: QueueDeadLetter) -> bool:
            return (
                letter.code == DELIVERY_LIMIT.upper()
                and letter.rescues < MAX_REQUEUES
                and letter.execution is not None
            )

        return await self._each(innocent, self._send)

    async def _each(self, chosen: Callable[[QueueDeadLetter], bool], action: Any) -> int:
        done = 0
        async with self._read() as channel:
            # Bounded by the current number, because a requeued letter may return meanwhile.
            async for message in self._messages(channel, await self._length(channel)):
                letter = read_dead_letter(message)
                if chosen(letter):
                    if action is not None:
                        await action(channel, letter, message)
                    channel.ack(message.tag)
                    del self._held[message.tag]
                    done += 1
        return done

    async def _send(self, channel: Channel, letter: QueueDeadLetter, message: Message) -> None:
        """Send a letter to its queue. It keeps its mark, so it has the same id if it is rejected again, and the message
        id that its publisher gave it."""
        headers: dict[str, Any] = {"rune-rescues": letter.rescues + 1}
        mark = message.headers.get(MARK_HEADER)
        if mark is not None:
            headers[MARK_HEADER] = mark
        stamp = MessageProperties(
            headers=headers,
            message_id=message.message_id,
            type="NodeExecutionMessage",
            app_id="rune",
            timed=True,
        )
        await channel.publish(self._topology.execution, letter.queue, letter.body, stamp)


async def requeue_innocent(letters: DeadLetters, pause: float = CHECK_PERIOD_S) -> None:
    """Requeue innocent letters periodically until cancelled. Several processes may run it, because the broker delivers
    a letter to one of them only. Reading requeues every letter, so it is skipped while their number is unchanged."""
    last_error, seen, unchanged = "", 0, 0
    while True:
        await asyncio.sleep(pause)
        try:
            waiting = await letters.count()
            unchanged += 1
            if waiting == seen and unchanged < MAX_UNCHANGED_CHECKS:
                continue
            count = await letters.requeue_innocent()
            seen, unchanged = waiting - count, 0
        except AmqpError as error:
            # Log a repeated error once.
            if error.message != last_error:
                log.warning("dead letters could not be checked: %s", error.message)
            last_error = error.message
        else:
            last_error = ""
            if count:
                log.warning("requeued %d messages that only exceeded the delivery limit", count)
