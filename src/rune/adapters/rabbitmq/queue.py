"""Queue on RabbitMQ: hints as JSON messages, published with confirms and acknowledged when processed.

No execution depends on a message: the sweeper resends tokens from the state whose last message is certainly lost.
Messages that could not be published in time are buffered and published when the broker is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import count, islice
from secrets import token_hex
from typing import Protocol, TypeVar

from rune.adapters.rabbitmq.amqp.channel import Outgoing
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, BrokerUnavailableError, ChannelClosedError
from rune.adapters.rabbitmq.amqp.frames import Message, MessageProperties
from rune.adapters.rabbitmq.consumer import WATCH_PERIOD_S, Consumer, HeldMessage
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.rabbitmq.topology import DELAYS_S, Kind, Topology, declare
from rune.codec.messages import (
    NO_CONTEXT,
    InvalidMessageError,
    MessageContext,
    MessageTooLargeError,
    NodeExecutionMessage,
    decode_execution,
    decode_hint,
    decode_record,
    encode_hint,
    execution_of,
    is_large,
)
from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.token import Token
from rune.errors import RuneError
from rune.ports.inspection import QueueDepth
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.ports.queue import (
    LANES,
    Delivery,
    LeftToOthersError,
    Route,
    SentCallback,
    default_route,
    failure_of,
    ignore_sent,
    lane_of,
)

log = logging.getLogger("rune.queue")

_T = TypeVar("_T")

EARLY_ACK_S = 60.0
"""A delivery that was held this long is acknowledged although its node still runs."""

MAX_LOCAL_DELAY_S = 2.5
"""Shorter delays are timed in this process, longer ones in a delay queue of the broker."""

LEFT_DELAY_S = 1.0
"""How long a message stays here that another worker has to handle. Without a delay it might return at once."""

PUBLISH_DEADLINE_S = 10.0
CLOSE_TIMEOUT_S = 2.0
"""How long `close` waits for messages to be requeued; the broker redelivers the rest."""

MAX_REASON_BYTES = 1000
"""A reason is a message header, and all headers have to fit into one frame."""

MAX_BATCH_BYTES = 4 * 1024 * 1024
"""How many bytes of self-contained messages are built before they are published."""

MAX_BUFFERED = 10_000
MAX_BUFFERED_BYTES = 16 * 1024 * 1024
MAX_RETRY_BATCH = 100
RECONNECT_TIMEOUT_S = 60.0
RETRY_DELAY_S = 0.5
PERMANENT_ERRORS = frozenset({"NO_ROUTE", "ACCESS_REFUSED", "NOT_ALLOWED", "PRECONDITION_FAILED"})
"""Errors that a retry cannot fix: no such queue, no permission, message too long."""

HINT = MessageProperties(type="NodeExecutionMessage", app_id="rune", timed=True)
"""With a timestamp, so that the broker's metrics show the age of the oldest message."""

MARK_HEADER = "rune-letter"
"""Tells dead letters with the same content apart."""

ERRORS_HEADER = "rune-errors"
"""How often the engine raised an error for a message that starts an execution: no state counts them yet."""

RECORD_HEADER = "rune-record"
"""Carries the record of an execution with its first tokens."""

ContextLookup = Callable[[str, Sequence[Token]], Awaitable[MessageContext]]
"""Returns what the messages of tokens of an execution carry besides them."""

ForeignMessageHandler = Callable[[NodeExecutionMessage, bytes], Awaitable[None]]
"""Handles a message of another producer, decoded and raw. An error makes it a dead letter."""


class RetryBuffer:
    """The newest messages that could not be published, each once: a token that is sent several times during an outage
    is published once after it."""

    def __init__(
        self, publisher: Publisher, most: int = MAX_BUFFERED, most_bytes: int = MAX_BUFFERED_BYTES
    ) -> None:
        self._publisher = publisher
        self._most = most
        self._most_bytes = most_bytes
        self._messages: dict[tuple[str, str, bytes], Outgoing] = {}
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, messages: Sequence[Outgoing], error: AmqpError) -> None:
        """Retry messages later unless the error is permanent. If the buffer is full, the oldest are dropped."""
        if error.code in PERMANENT_ERRORS:
            return
        for each in messages:
            self._add(each)
        while len(self._messages) > self._most or self._bytes > self._most_bytes:
            self._take(next(iter(self._messages)))
        if self._messages and self._sending is None:
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._sending = None

    def _add(self, message: Outgoing) -> None:
        exchange, key, body, _ = message
        if (exchange, key, body) not in self._messages:
            self._messages[(exchange, key, body)] = message
            self._bytes += len(body)

    def _take(self, key: tuple[str, str, bytes]) -> Outgoing:
        message = self._messages.pop(key)
        self._bytes -= len(message[2])
        return message

    def _take_batch(self) -> list[Outgoing]:
        """Remove the oldest message and others for the same queue. A queue that does not exist refuses all of its
        messages and those of no other queue."""
        route = next(iter(self._messages))[:2]
        same = islice((each for each in self._messages if each[:2] == route), MAX_RETRY_BATCH)
        return [self._take(each) for each in list(same)]

    async def _send(self) -> None:
        while self._messages:
            batch = self._take_batch()
            try:
                await self._publisher.link.up(RECONNECT_TIMEOUT_S)
                await self._publisher.publish(batch)
            except AmqpError as error:
                if error.code not in PERMANENT_ERRORS:
                    # Behind those of other queues, before those that came for the same queue meanwhile.
                    route = batch[0][:2]
                    waiting, self._messages, self._bytes = list(self._messages.values()), {}, 0
                    others = [each for each in waiting if each[:2] != route]
                    for each in (*others, *batch, *(each for each in waiting if each[:2] == route)):
                        self._add(each)
                    await asyncio.sleep(RETRY_DELAY_S)

    async def close(self) -> None:
        """Drop the buffered messages."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


class QueueDepthReader:
    """Reads the depth of the queues of a topology over its own connection. The age of messages is available only from
    the broker's metrics."""

    def __init__(self, url: str, topology: Topology) -> None:
        self._url = url
        self._topology = topology
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> list[QueueDepth]:
        """Return the depth of each queue of the topology."""
        return await self._connected(self._read)

    async def dead_letters(self) -> int | None:
        """Return the number of dead letters; None if this user may not read their queue."""
        return await self._connected(self._dead_letters)

    async def _connected(self, ask: Callable[[Connection], Awaitable[_T]]) -> _T:
        async with self._lock:
            connection = self._connection
            if connection is not None and connection.error is None:
                # A connection that was lost while idle fails here; open a new one.
                with contextlib.suppress(BrokerUnavailableError):
                    return await ask(connection)
            self._connection = await connect(self._url, name="depths")
            return await ask(self._connection)

    async def empty_lanes(self, lanes: Collection[str]) -> set[str]:
        """Return those of the lanes in which no message waits; one that does not exist is empty."""
        return await self._connected(lambda connection: self._empty_lanes(connection, lanes))

    async def _empty_lanes(self, connection: Connection, lanes: Collection[str]) -> set[str]:
        channel = await connection.channel()
        empty: set[str] = set()
        for lane in lanes:
            try:
                waiting = (await channel.declare_queue(lane, passive=True)).message_count
            except ChannelClosedError as closed:
                waiting = 0 if closed.reply == 404 else 1
                channel = await connection.channel()
            if not waiting:
                empty.add(lane)
        await channel.close()
        return empty

    async def _dead_letters(self, connection: Connection) -> int | None:
        channel = await connection.channel()
        try:
            declared = await channel.declare_queue(self._topology.dead, passive=True)
        except ChannelClosedError:
            return None
        await channel.close()
        return declared.message_count or 0

    async def _read(self, connection: Connection) -> list[QueueDepth]:
        channel = await connection.channel()
        found: list[QueueDepth] = []
        for queue in self._topology.queues:
            waiting = 0
            for lane in LANES:
                try:
                    declared = await channel.declare_queue(self._topology.lane(queue, lane), passive=True)
                    waiting += declared.message_count or 0
                except ChannelClosedError:
                    # The queue does not exist or may not be read; the broker closed the channel.
                    channel = await connection.channel()
            found.append(QueueDepth(queue=queue, waiting=waiting))
        await channel.close()
        return found

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def _first_hint(record: bytes) -> MessageProperties:
    return MessageProperties(
        headers={RECORD_HEADER: bytearray(record)}, type="NodeExecutionMessage", app_id="rune", timed=True
    )


def _sent_record(execution: str, held: HeldMessage) -> ExecutionRecord | None:
    """Return the record that a message carries. One that was delivered before may be older than the end and the removal
    of its execution."""
    if held.message.redelivered or not held.message.has_headers:
        return None
    record = held.message.headers.get(RECORD_HEADER)
    return decode_record(execution, bytes(record)) if isinstance(record, bytes | bytearray) else None


def _errors_of(message: Message) -> int:
    """Return how often the engine raised an error for a message."""
    found = message.headers.get(ERRORS_HEADER) if message.has_headers else None
    return found if isinstance(found, int) and found > 0 else 0


def _moved(errors: int, message_id: str | None) -> MessageProperties:
    if not errors and message_id is None:
        return HINT
    return MessageProperties(
        headers={ERRORS_HEADER: errors} if errors else None,
        message_id=message_id,
        type="NodeExecutionMessage",
        app_id="rune",
        timed=True,
    )


def dead_letter_properties(message: Message, code: str, reason: str, queue: str) -> MessageProperties:
    """Return the properties of the dead letter of a message; `queue` is where a requeued letter goes. A message that
    was a dead letter before keeps its mark."""
    headers = {"rune-code": code, "rune-reason": _shortened(reason), "rune-queue": queue}
    known = message.headers.get(MARK_HEADER) if message.has_headers else None
    headers[MARK_HEADER] = known if isinstance(known, str) else token_hex(8)
    return MessageProperties(
        headers=headers,
        message_id=message.message_id,
        type="NodeExecutionMessage",
        app_id="rune",
        timed=True,
    )


def _shortened(reason: str) -> str:
    """Return a reason cut to the size of a header."""
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")


async def decode_foreign(body: bytes, turn: asyncio.Lock) -> NodeExecutionMessage:
    """Decode a message of another producer; large ones in a thread, one at a time."""
    if not is_large(body):
        return decode_execution(body)
    async with turn:
        return await asyncio.to_thread(decode_execution, body)


class MessageBuilder(Protocol):
    """Builds self-contained messages, for consumers without access to the stores."""

    async def message(self, execution: str, token: Token, names: MessageContext, priority: int) -> bytes: ...

    async def refuse(self, execution: str, error: MessageTooLargeError) -> None:
        """End an execution whose next message would be too long."""


class RabbitQueue:
    """Sends and receives hints. Receives only while a call of `receive` waits; a lost hint is resent from the state."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "workflow",
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        consumer: str = "worker",
        prefetch: int = 256,
        kind: Kind = "classic",
        early: float = EARLY_ACK_S,
        deadline: float = PUBLISH_DEADLINE_S,
        watch: float = WATCH_PERIOD_S,
        adopt: bool = False,
        route: Route = default_route,
        context_lookup: ContextLookup | None = None,
        message_builder: MessageBuilder | None = None,
        foreign_handler: ForeignMessageHandler | None = None,
        on_sent: SentCallback = ignore_sent,
    ) -> None:
        """With `adopt`, a named queue that does not exist yet is declared when a message is sent to it.

        Without a `context_lookup` messages carry the execution id only, with a `message_builder` they are
        self-contained instead of hints, and without a `foreign_handler` messages of other producers become dead
        letters.
        """
        self._url = url
        self.topology = Topology(prefix, queues, kind)
        self.publisher = Publisher(url, self.topology, f"{consumer} out", deadline=deadline, adopt=adopt)
        self.consumer = Consumer(
            url, self.topology, consumer, prefetch, self._requeue_now, deadline=deadline, watch=watch
        )
        self._retry_buffer = RetryBuffer(self.publisher)
        self._depths = QueueDepthReader(url, self.topology)
        self._early = early
        self._route = route
        self._routing_keys: dict[tuple[str, int, bool], str] = {}
        self._context_lookup = context_lookup
        self._message_builder = message_builder
        self._foreign_handler = foreign_handler
        self._decoding = asyncio.Lock()
        self._tags = count(1)
        self._held: dict[int, HeldMessage] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._delayed: dict[int, asyncio.TimerHandle] = {}
        self._early_ack_timer: asyncio.TimerHandle | None = None
        self._on_sent = on_sent

    async def check(self) -> None:
        """Connect once and declare the topology; raise if that is impossible."""
        connection = await connect(self._url, name="check")
        try:
            await declare(connection, self.topology)
        finally:
            await connection.close()

    async def send(self, execution: str, tokens: Sequence[Token], priority: int = 5) -> None:
        if not tokens:
            return
        names = NO_CONTEXT if self._context_lookup is None else await self._context_lookup(execution, tokens)
        if self._message_builder is not None:
            await self._send_self_contained(self._message_builder, execution, tokens, names, priority)
            return
        properties = _first_hint(names.record) if names.record else HINT
        messages: list[Outgoing] = []
        for token in tokens:
            key = await self._routing_key(execution, token, names, priority)
            body = encode_hint(execution, token, names, priority)
            messages.append((self.topology.execution, key, body, properties))
        await self._publish(messages)
        self._on_sent(execution, tokens)

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; after the deadline raise, and buffer the messages until the broker is back."""
        try:
            await self.publisher.publish(messages)
        except AmqpError as error:
            self._retry_buffer.keep(messages, error)
            raise

    async def _routing_key(self, execution: str, token: Token, names: MessageContext, priority: int) -> str:
        """Return the name of the lane that serves a token."""
        if names.plan is None:
            queue = await self._route(execution, token)
        else:
            queue = names.plan.nodes[token.node].node.queue or DEFAULT_QUEUE
        return self._lane(queue, token, priority)

    def _lane(self, queue: str, token: Token, priority: int) -> str:
        which = queue, priority, bool(token.path)
        key = self._routing_keys.get(which)
        if key is None:
            lane = LANES[lane_of(priority, items=bool(token.path))]
            key = self._routing_keys[which] = self.topology.lane(queue, lane)
        return key

    async def lane_of(self, execution: str, token: Token, priority: int) -> tuple[str, str]:
        """Return the queue that serves a token, and the name of its lane."""
        queue = await self._route(execution, token)
        return queue, self._lane(queue, token, priority)

    async def empty_lanes(self, lanes: Collection[str]) -> set[str]:
        """Return those of the lanes in which no message waits."""
        return await self._depths.empty_lanes(lanes)

    @property
    def delivered(self) -> Mapping[str, int]:
        """By lane, when the newest message that arrived here was sent (epoch ms)."""
        return self.consumer.delivered

    async def _send_self_contained(
        self,
        builder: MessageBuilder,
        execution: str,
        tokens: Sequence[Token],
        names: MessageContext,
        priority: int,
    ) -> None:
        """Build and publish messages in bounded batches, because each of them may be large."""
        messages: list[Outgoing] = []
        size = 0
        for token in tokens:
            try:
                body = await builder.message(execution, token, names, priority)
            except MessageTooLargeError as error:
                await builder.refuse(execution, error)
                return
            key = await self._routing_key(execution, token, names, priority)
            messages.append((self.topology.execution, key, body, HINT))
            size += len(body)
            if size >= MAX_BATCH_BYTES:
                await self._publish(messages)
                messages, size = [], 0
        if messages:
            await self._publish(messages)
        self._on_sent(execution, tokens)

    async def dead_letters(self) -> int | None:
        return await self._depths.dead_letters()

    async def depths(self) -> list[QueueDepth]:
        return await self._depths.read()

    async def receive(self) -> Delivery:
        while True:
            held = await self.consumer.receive()
            try:
                execution, token = decode_hint(held.message.body)
            except Exception as error:
                # Whatever a message contains, it must not end the worker, nor the next one that receives it.
                self._run_in_background(self._dead_letter_message(held, *failure_of(error)))
                continue
            if token is None:
                self._run_in_background(self._handle_foreign(held))
                continue
            tag = next(self._tags)
            self._held[tag] = held
            if self._early_ack_timer is None:
                self._early_ack_timer = self._call_later(self._early, self._release)
            return Delivery(execution, token, tag, held.message.redelivered, _sent_record(execution, held))

    async def receive_more(self, delivery: Delivery, limit: int) -> list[Delivery]:
        """Return nothing: the broker pushes a message per free slot, and each slot handles its own."""
        return []

    async def ack(self, delivery: Delivery) -> None:
        held = self._held.pop(delivery.tag, None)
        if held is not None:
            held.channel.ack(held.message.tag)

    async def requeue(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Requeue a delivery in the background; never raises, because the broker redelivers after a lost connection."""
        held = self._held.pop(delivery.tag, None)
        if held is None:
            return
        if 0 < delay <= MAX_LOCAL_DELAY_S:
            number = delivery.tag
            self._delayed[number] = self._call_later(delay, lambda: self._requeue_delayed(number, held))
        else:
            self._run_in_background(self._move(held, delay))

    async def dead_letter(self, delivery: Delivery, code: str, message: str) -> None:
        """Move a delivery to the dead letter queue, with the reason in its headers."""
        held = self._held.pop(delivery.tag, None)
        if held is not None:
            await self._dead_letter_message(held, code, message)

    async def pause(self) -> None:
        self.consumer.pause()

    async def resume(self) -> None:
        self.consumer.resume()

    async def close(self) -> None:
        """Close the connections; the broker requeues unacknowledged deliveries."""
        for timer in (*self._delayed.values(), self._early_ack_timer):
            if timer is not None:
                timer.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
            for each in late:
                each.cancel()
        await self._retry_buffer.close()
        await self._depths.close()
        await self.consumer.close()
        await self.publisher.close()

    def _call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay, callback)

    def _run_in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_background_done)

    def _on_background_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The broker delivers the message again when the channel is closed.
            log.error("a message could not be returned to the broker", exc_info=error)

    def _requeue_delayed(self, number: int, held: HeldMessage) -> None:
        del self._delayed[number]
        self._requeue_now(held)

    def _requeue_now(self, held: HeldMessage) -> None:
        self._run_in_background(self._move(held, 0.0))

    async def _move(self, held: HeldMessage, delay: float, errors: int | None = None) -> None:
        """Publish a message to the end of its queue or to a delay queue, then acknowledge the delivery."""
        known = _errors_of(held.message) if errors is None else errors
        stamp = _moved(known, held.message.message_id)
        exchange = self.topology.execution
        if delay > 0:
            exchange = self.topology.retry(next((each for each in DELAYS_S if each >= delay), DELAYS_S[-1]))
        await self._publish_and_ack(held, (exchange, held.queue, held.message.body, stamp))

    async def _dead_letter_message(self, held: HeldMessage, code: str, message: str) -> None:
        execution = execution_of(held.message.body) or "an unknown execution"
        log.error("message of %s on %s is a dead letter: %s: %s", execution, held.queue, code, message)
        stamp = dead_letter_properties(held.message, code, message, held.queue)
        exchange = self.topology.dead_exchange
        await self._publish_and_ack(held, (exchange, held.queue, held.message.body, stamp))

    async def _publish_and_ack(self, held: HeldMessage, message: Outgoing) -> None:
        # The broker has requeued the delivery of a lost channel already.
        if held.channel.error is not None and not held.early:
            return
        try:
            await self.publisher.publish([message])
        except AmqpError as error:
            log.warning("a message could not be republished and is requeued unchanged: %s", error.message)
            held.channel.nack(held.message.tag, requeue=True)
        else:
            held.channel.ack(held.message.tag)

    async def _handle_foreign(self, held: HeldMessage) -> None:
        try:
            message = await decode_foreign(held.message.body, self._decoding)
            if self._foreign_handler is None:
                raise InvalidMessageError(
                    "messages without a token are not accepted here", code="UNKNOWN_EXECUTION"
                )
            await self._foreign_handler(message, held.message.body)
        except StoreUnavailableError:
            await self._move(held, DELAYS_S[0])
        except LeftToOthersError as error:
            log.info(
                "message of %s is left to other workers: %s",
                execution_of(held.message.body),
                error,
                extra={"cause": str(error)},
            )
            number = next(self._tags)
            self._delayed[number] = self._call_later(
                LEFT_DELAY_S, lambda: self._requeue_delayed(number, held)
            )
        except RuneError as error:
            await self._dead_letter_message(held, error.code, error.message)
        except Exception as error:
            log.exception("a message of another producer could not be handled")
            await self._retry_or_reject(held, error)
        else:
            held.channel.ack(held.message.tag)

    async def _retry_or_reject(self, held: HeldMessage, error: Exception) -> None:
        """Retry a message for which the engine raised an error after each delay in turn, then reject it."""
        errors = _errors_of(held.message)
        if errors < len(DELAYS_S):
            await self._move(held, DELAYS_S[errors], errors + 1)
        else:
            await self._dead_letter_message(held, *failure_of(error))

    def _release(self) -> None:
        """Acknowledge deliveries of long-running nodes. From then on an expired lease resends their token, not the
        broker."""
        self._early_ack_timer = None
        now = asyncio.get_running_loop().time()
        # Deliveries are in the order of their arrival.
        for held in self._held.values():
            if held.early:
                continue
            left = held.since + self._early - now
            if left > 0:
                self._early_ack_timer = self._call_later(left, self._release)
                return
            held.early = True
            held.channel.ack(held.message.tag)
