"""Dead letters on the broker: looking at them, sending them again, removing them.

A worker that crashes uses up a delivery of everything it held, so on quorum queues innocent messages reach the limit
beside the guilty one. They are handed back by themselves, a few times: who really kills workers is known to the state.

The rescue: hands innocent messages back that were delivered too often, beside somebody who looks after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.errors import AmqpError
from rune.adapters.rabbitmq.amqp.frames import Message, MessageProperties
from rune.adapters.rabbitmq.topology import Topology
from rune.codec.messages import InvalidMessageError, decode_hint

MAX_REQUEUES = 5
DELIVERY_LIMIT = "delivery_limit"


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter: why, from which queue, of which execution (None if that cannot be told), and itself."""

    code: str
    reason: str
    queue: str
    execution: str | None
    body: bytes
    rescues: int = 0


def read_dead_letter(message: Message) -> DeadLetter:
    """What is known of a dead letter."""
    headers = message.headers
    died = str(headers.get("x-first-death-reason", ""))
    code = str(headers.get("rune-code", died.upper() or "UNKNOWN"))
    reason = str(headers.get("rune-reason", f"the broker gave it up: {died}" if died else "no reason given"))
    queue = str(headers.get("rune-queue", headers.get("x-first-death-queue", message.routing_key)))
    try:
        execution: str | None = decode_hint(message.body)[0]
    except InvalidMessageError:
        execution = None
    rescues = headers.get("rune-rescues", 0)
    return DeadLetter(
        code, reason, queue, execution, message.body, rescues if isinstance(rescues, int) else 0
    )


class DeadLetters:
    """The queue of dead letters, for as long as one looks at it. Needs the rights of the master."""

    def __init__(self, url: str, topology: Topology) -> None:
        self._url = url
        self._topology = topology

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Channel]:
        """What was taken and not acknowledged is back in its place afterwards."""
        connection = await connect(self._url, name="dead letters")
        try:
            channel = await connection.channel()
            await channel.confirm()
            yield channel
        finally:
            await connection.close()

    async def list(self, limit: int = 100) -> list[DeadLetter]:
        """The oldest first."""
        found: list[DeadLetter] = []
        async with self._open() as channel:
            while len(found) < limit and (message := await channel.get(self._topology.dead)) is not None:
                found.append(read_dead_letter(message))
        return found

    async def count(self) -> int:
        """How many there are in nobody's hands."""
        async with self._open() as channel:
            return (await channel.declare_queue(self._topology.dead, passive=True)).message_count or 0

    async def requeue(self, chosen: Callable[[DeadLetter], bool] = lambda letter: True) -> int:
        """Send those chosen again, to where they came from. How many there were."""
        return await self._each(chosen, self._send)

    async def discard(self, chosen: Callable[[DeadLetter], bool]) -> int:
        """Remove those chosen. How many there were."""
        return await self._each(chosen, None)

    async def requeue_innocent(self) -> int:
        """Hand back what only was delivered too often. How many there were."""

        def innocent(letter: DeadLetter) -> bool:
            return (
                letter.code == DELIVERY_LIMIT.upper()
                and letter.rescues < MAX_REQUEUES
                and letter.execution is not None
            )

        return await self._each(innocent, self._send)

    async def _each(self, chosen: Callable[[DeadLetter], bool], act: Any) -> int:
        done = 0
        async with self._open() as channel:
            last = await channel.declare_queue(self._topology.dead, passive=True)
            for _ in range(last.message_count or 0):  # not those that come back meanwhile
                message = await channel.get(self._topology.dead)
                if message is None:
                    break
                letter = read_dead_letter(message)
                if chosen(letter):
                    if act is not None:
                        await act(channel, letter)
                    channel.ack(message.tag)
                    done += 1
        return done

    async def _send(self, channel: Channel, letter: DeadLetter) -> None:
        stamp = MessageProperties(
            headers={"rune-rescues": letter.rescues + 1}, type="NodeExecutionMessage", app_id="rune"
        )
        await channel.publish(self._topology.execution, letter.queue, letter.body, stamp)


log = logging.getLogger("rune.rabbitmq")

PAUSE = 15.0  # s between two looks
SAME = 20  # looks at an unchanged number of letters, after which they are gone through all the same


async def requeue_innocent(letters: DeadLetters, pause: float = PAUSE) -> None:
    """Until cancelled. Several may be at it: whoever has a letter in hands is alone with it. To go through the letters
    takes each of them out and puts it back, so that is not done as long as none has come or gone."""
    why, seen, idle = "", 0, 0
    while True:
        await asyncio.sleep(pause)
        try:
            waiting = await letters.count()
            idle += 1
            if waiting == seen and idle < SAME:
                continue
            count = await letters.requeue_innocent()
            seen, idle = waiting - count, 0
        except AmqpError as error:
            if error.message != why:  # the same again and again is said once
                log.warning("dead letters are not looked at: %s", error.message)
            why = error.message
        else:
            why = ""
            if count:
                log.warning("%d messages that were only delivered too often were handed back", count)
