"""What could not be sent in time: kept for a while, and sent as soon as the broker takes messages again.

Nobody may rely on it: whoever sent it was told that the broker is away, and what is dropped here, or is in a process
that dies, is sent again from the state, a minute later. It spares executions that minute.

Depths: how much waits in the queues of a topology. For how long, only the broker's own metrics say.

The queue on RabbitMQ: hints as JSON messages, confirmed when sent, acknowledged when served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Protocol

from rune.adapters.rabbitmq.amqp.channel import Outgoing
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError, ChannelClosedError
from rune.adapters.rabbitmq.amqp.frames import MessageProperties
from rune.adapters.rabbitmq.consumer import WATCH_PERIOD_S, Consumer, HeldMessage
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.rabbitmq.topology import DEFAULT, DELAYS_S, Kind, Topology, declare
from rune.codec.messages import (
    NO_CONTEXT,
    InvalidMessageError,
    MessageContext,
    MessageTooLargeError,
    NodeExecutionMessage,
    decode_execution,
    decode_hint,
    encode_hint,
)
from rune.core.execution.token import Token
from rune.errors import RuneError
from rune.ports.inspection import QueueDepth
from rune.ports.journal import StoreUnavailableError
from rune.ports.queue import LANES, Delivery, lane_of

MAX_BUFFERED = 10_000
MAX_BUFFERED_BYTES = 16 * 1024 * 1024
MAX_RETRY_BATCH = 100
SEND_TIMEOUT_S = 60.0  # s of waiting for a connection, before it is asked for again
RETRY_DELAY_S = 0.5
PERMANENT_ERRORS = frozenset({"NO_ROUTE", "ACCESS_REFUSED", "NOT_ALLOWED", "PRECONDITION_FAILED"})
"""What will not be better when the broker is back: no such queue, no right, too long."""


class RetryBuffer:
    """The newest messages that the publisher was not rid of."""

    def __init__(
        self, publisher: Publisher, most: int = MAX_BUFFERED, most_bytes: int = MAX_BUFFERED_BYTES
    ) -> None:
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
        if error.code in PERMANENT_ERRORS:
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
            batch = [self._kept.popleft() for _ in range(min(MAX_RETRY_BATCH, len(self._kept)))]
            self._bytes -= sum(len(each[2]) for each in batch)
            try:
                await self._publisher.link.up(SEND_TIMEOUT_S)
                await self._publisher.publish(batch)
            except AmqpError as error:
                if error.code not in PERMANENT_ERRORS:
                    self._kept.extendleft(reversed(batch))
                    self._bytes += sum(len(each[2]) for each in batch)
                    await asyncio.sleep(RETRY_DELAY_S)

    async def close(self) -> None:
        """What is still kept is dropped."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


class QueueDepthReader:
    """Looks over a connection of its own, which is kept from one look to the next."""

    def __init__(self, url: str, topology: Topology) -> None:
        self._url = url
        self._topology = topology
        self._connection: Connection | None = None
        self._looking = asyncio.Lock()

    async def read(self) -> list[QueueDepth]:
        """One for each queue that this process knows of."""
        async with self._looking:
            kept = self._connection
            if kept is not None and kept.error is None:
                try:
                    return await self._look(kept)
                except BrokerUnavailableError:
                    pass  # it was gone already, and nobody had noticed
            self._connection = await connect(self._url, name="depths")
            return await self._look(self._connection)

    async def _look(self, connection: Connection) -> list[QueueDepth]:
        channel = await connection.channel()
        found: list[QueueDepth] = []
        for queue in self._topology.queues:
            waiting = 0
            for lane in LANES:
                try:
                    told = await channel.declare_queue(self._topology.lane(queue, lane), passive=True)
                    waiting += told.message_count or 0
                except ChannelClosedError:  # not there, or not for us to see
                    channel = await connection.channel()
            found.append(QueueDepth(queue=queue, waiting=waiting))
        await channel.close()
        return found

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


log = logging.getLogger("rune.queue")

EARLY_ACK_S = 60.0  # s of holding a delivery, after which it is acknowledged although its node still runs
SHORT_DELAY_S = 2.5  # s: a shorter delay is waited for here, a longer one in a queue of the broker
DEADLINE = 10.0
CLOSE_TIMEOUT_S = (
    2.0  # s that what is on its way back gets at the end; the broker hands out again what is not
)
MAX_REASON_BYTES = 1000  # bytes: it is in the header, which has to fit into one frame

Route = Callable[[str, Token], Awaitable[str]]
"""The name of the queue that a token of an execution belongs in."""
ContextLookup = Callable[[str], Awaitable[MessageContext]]
"""What an execution is called outside."""
ForeignMessageHandler = Callable[[NodeExecutionMessage, bytes], Awaitable[None]]
"""What to do about a message that somebody else wrote, also given as it came. An error makes it a dead letter."""

MAX_BATCH_BYTES = 4 * 1024 * 1024  # bytes of full messages that are written before the first of them is sent


def shortened(reason: str) -> str:
    """As much of a reason as a header takes."""
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")


class MessageBuilder(Protocol):
    """Who writes messages in full."""

    async def message(self, execution: str, token: Token, names: MessageContext, priority: int) -> bytes: ...

    async def refuse(self, execution: str, error: MessageTooLargeError) -> None:
        """End an execution whose next message would be too long."""


HINT = MessageProperties(type="NodeExecutionMessage", app_id="rune", timed=True)
"""With the time, so that the broker can tell for how long the oldest has waited."""


class RabbitQueue:
    """Takes deliveries only for who waits. Nothing that it holds is needed to go on: what is lost is sent again."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "workflow",
        queues: Sequence[str] = (DEFAULT,),
        consumer: str = "worker",
        prefetch: int = 256,
        kind: Kind = "classic",
        early: float = EARLY_ACK_S,
        deadline: float = DEADLINE,
        watch: float = WATCH_PERIOD_S,
        adopt: bool = False,
    ) -> None:
        """`adopt`: a named queue that nobody has declared yet is declared when something is sent to it."""
        self._url = url
        self.topology = Topology(prefix, queues, kind)
        self.publisher = Publisher(url, self.topology, f"{consumer} out", deadline=deadline, adopt=adopt)
        self.intake = Consumer(
            url, self.topology, consumer, prefetch, self._return, deadline=deadline, watch=watch
        )
        self._unsent = RetryBuffer(self.publisher)
        self._depths = QueueDepthReader(url, self.topology)
        self._early = early
        self._route: Route | None = None
        self._naming: ContextLookup | None = None
        self._strangers: ForeignMessageHandler | None = None
        self._inlining: MessageBuilder | None = None
        self._tags = count(1)
        self._held: dict[int, HeldMessage] = {}
        self._works: set[asyncio.Task[None]] = set()
        self._delayed: dict[int, asyncio.TimerHandle] = {}
        self._letting_go: asyncio.TimerHandle | None = None

    def routes(self, route: Route) -> None:
        """Which queue a token belongs in; without it, the default one."""
        self._route = route

    def names(self, naming: ContextLookup) -> None:
        """What executions are called in messages; without it, messages name them alone."""
        self._naming = naming

    def strangers(self, strangers: ForeignMessageHandler) -> None:
        """Who looks after messages that others wrote; without it they are dead letters."""
        self._strangers = strangers

    def inlines(self, inlining: MessageBuilder) -> None:
        """Have messages written in full, for readers without access to the stores."""
        self._inlining = inlining

    async def check(self) -> None:
        """Connect once and set everything up; raises what makes that impossible, with the remedy where there is one."""
        connection = await connect(self._url, name="check")
        try:
            await declare(connection, self.topology)
        finally:
            await connection.close()

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        if not tokens:
            return
        names = NO_CONTEXT if self._naming is None else await self._naming(execution)
        if self._inlining is not None:
            await self._send_in_full(self._inlining, execution, tokens, names, priority)
            return
        messages: list[Outgoing] = []
        for token in tokens:
            key = await self._key(execution, token, priority)
            messages.append(
                (self.topology.execution, key, encode_hint(execution, token, names, priority), HINT)
            )
        await self._publish(messages)

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        """Whoever waits longer than the deadline is told so, and what they sent follows when the broker is back."""
        try:
            await self.publisher.publish(messages)
        except AmqpError as error:
            self._unsent.keep(messages, error)
            raise

    async def _key(self, execution: str, token: Token, priority: int) -> str:
        queue = DEFAULT if self._route is None else await self._route(execution, token)
        return self.topology.lane(queue, LANES[lane_of(priority, items=bool(token.path))])

    async def _send_in_full(
        self,
        inlining: MessageBuilder,
        execution: str,
        tokens: Sequence[Token],
        names: MessageContext,
        priority: int,
    ) -> None:
        """A few at a time, because each of them may be large."""
        messages: list[Outgoing] = []
        size = 0
        for token in tokens:
            try:
                body = await inlining.message(execution, token, names, priority)
            except MessageTooLargeError as error:
                await inlining.refuse(execution, error)
                return
            messages.append(
                (self.topology.execution, await self._key(execution, token, priority), body, HINT)
            )
            size += len(body)
            if size >= MAX_BATCH_BYTES:
                await self._publish(messages)
                messages, size = [], 0
        if messages:
            await self._publish(messages)

    async def depths(self) -> list[QueueDepth]:
        return await self._depths.read()

    async def receive(self) -> Delivery:
        while True:
            held = await self.intake.receive()
            try:
                execution, token = decode_hint(held.message.body)
            except InvalidMessageError as bad:
                self._work(self._dead_letter_message(held, bad.code, bad.message))
                continue
            if token is None:
                self._work(self._handle_foreign(held))
                continue
            tag = next(self._tags)
            self._held[tag] = held
            if self._letting_go is None:
                self._letting_go = self._later(self._early, self._release)
            return Delivery(execution, token, tag, held.message.redelivered)

    async def ack(self, delivery: Delivery) -> None:
        held = self._held.pop(delivery.tag, None)
        if held is not None:
            held.channel.ack(held.message.tag)

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Neither waits nor raises: with the connection gone the broker hands it out again by itself."""
        held = self._held.pop(delivery.tag, None)
        if held is None:
            return
        if 0 < delay <= SHORT_DELAY_S:
            number = delivery.tag
            self._delayed[number] = self._later(delay, lambda: self._due(number, held))
        else:
            self._work(self._move(held, delay))

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Nobody can serve it: kept where an operator looks, with the reason."""
        held = self._held.pop(delivery.tag, None)
        if held is not None:
            await self._dead_letter_message(held, code, message)

    async def close(self) -> None:
        """What is still in our hands goes back to its queue."""
        for timer in (*self._delayed.values(), self._letting_go):
            if timer is not None:
                timer.cancel()
        if self._works:
            _, late = await asyncio.wait(self._works, timeout=CLOSE_TIMEOUT_S)
            for each in late:
                each.cancel()
        await self._unsent.close()
        await self._depths.close()
        await self.intake.close()
        await self.publisher.close()

    def _later(self, delay: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay, act)

    def _work(self, act: Awaitable[None]) -> None:
        """Something that nobody waits for."""
        work = asyncio.ensure_future(act)
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    def _due(self, number: int, held: HeldMessage) -> None:
        del self._delayed[number]
        self._return(held)

    def _return(self, held: HeldMessage) -> None:
        self._work(self._move(held, 0.0))

    async def _move(self, held: HeldMessage, delay: float) -> None:
        """To the end of its queue, or into one where it waits; gone here when it is safe there."""
        exchange = self.topology.execution
        if delay > 0:
            exchange = self.topology.retry(next((each for each in DELAYS_S if each >= delay), DELAYS_S[-1]))
        await self._publish_and_ack(held, (exchange, held.queue, held.message.body, HINT))

    async def _dead_letter_message(self, held: HeldMessage, code: str, message: str) -> None:
        log.error("a message on %s is a dead letter: %s: %s", held.queue, code, message)
        reason = {"rune-code": code, "rune-reason": shortened(message), "rune-queue": held.queue}
        stamp = MessageProperties(headers=reason, type="NodeExecutionMessage", app_id="rune")
        exchange = self.topology.dead_exchange
        await self._publish_and_ack(held, (exchange, held.queue, held.message.body, stamp))

    async def _publish_and_ack(self, held: HeldMessage, message: Outgoing) -> None:
        if held.channel.error is not None and not held.early:
            return  # the broker has it back already
        try:
            await self.publisher.publish([message])
        except AmqpError as error:
            log.warning("a message goes back to the broker as it is: %s", error.message)
            held.channel.nack(held.message.tag, requeue=True)
        else:
            held.channel.ack(held.message.tag)

    async def _handle_foreign(self, held: HeldMessage) -> None:
        try:
            message = decode_execution(held.message.body)
            if self._strangers is None:
                raise InvalidMessageError(
                    "nobody here takes messages without a token", code="UNKNOWN_EXECUTION"
                )
            await self._strangers(message, held.message.body)
        except StoreUnavailableError:
            await self._move(held, DELAYS_S[0])
        except RuneError as error:
            await self._dead_letter_message(held, error.code, error.message)
        except Exception as error:
            log.exception("a message of somebody else could not be handled")
            await self._dead_letter_message(held, "DEAD_LETTERED", f"{type(error).__name__}: {error}")
        else:
            held.channel.ack(held.message.tag)

    def _release(self) -> None:
        """Acknowledge what runs for long: from here on its lease and its timer bring it back, not the broker."""
        self._letting_go = None
        now = asyncio.get_running_loop().time()
        for held in self._held.values():  # in the order in which they came
            if held.early:
                continue
            left = held.since + self._early - now
            if left > 0:
                self._letting_go = self._later(left, self._release)
                return
            held.early = True
            held.channel.ack(held.message.tag)
