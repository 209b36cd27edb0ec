"""Settling: what was published and is not confirmed, what was delivered and is not acknowledged.

A channel: requests and their answers, publishing with confirms, consumers, and what the broker says unasked.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from pamqp import commands

from rune.adapters.rabbitmq.amqp.errors import (
    AmqpError,
    BrokerUnavailableError,
    ChannelClosedError,
    NackedError,
    ProtocolError,
    UnroutableError,
)
from rune.adapters.rabbitmq.amqp.frames import (
    GET_OK,
    JSON,
    RETURN,
    Message,
    MessageProperties,
    ack_command,
    command,
    content,
    nack_command,
    publish_command,
    read_content,
    read_deliver,
)


class Batch(msgspec.Struct, gc=False):
    """Messages that somebody waits for together."""

    future: asyncio.Future[None]
    left: int
    error: AmqpError | None = None


class PublisherConfirms:
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
            raise ProtocolError(503, f"message {tag} is confirmed and was never published")
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
            batch.error = NackedError("the broker did not take a message")
        if batch.left == 0 and not batch.future.done():
            if batch.error is None:
                batch.future.set_result(None)
            else:
                batch.future.set_exception(batch.error)

    def returned(self, number: str, error: UnroutableError) -> bool:
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
        self._fail(late, BrokerUnavailableError(f"no confirm within {deadline:g} s", code="PUBLISH_DEADLINE"))
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


class PendingAcks:
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


MAX_CACHED_ROUTES = 1024  # ways to publish that are remembered
MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # bytes of a message that is taken

Consumer = Callable[[Message], None]
Cancelled = Callable[[str], None]
Outgoing = tuple[str, str, bytes, MessageProperties]
"""Exchange, routing key, body and properties of a message to publish."""


class FrameWriter(Protocol):
    """The connection, as a channel sees it."""

    room: int
    deadline: float

    def write(self, data: bytes) -> None: ...
    def abort(self, error: AmqpError) -> None: ...
    def forget(self, number: int) -> None: ...
    async def clear(self) -> None: ...
    @property
    def is_clear(self) -> bool: ...


class Channel:
    """One channel. `on_close` is called once, with the reason, unless this side closed it."""

    def __init__(self, line: FrameWriter, number: int) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()
        self.number = number
        self.error: AmqpError | None = None
        self.on_close: Callable[[AmqpError], None] | None = None
        self.on_return: Callable[[Message, UnroutableError], None] | None = None
        self._answers: deque[tuple[list[str], asyncio.Future[Any]]] = deque()
        self._consumers: dict[bytes, tuple[Consumer, Cancelled | None]] = {}
        self._ways: dict[tuple[str, str], bytes] = {}
        self._posts: dict[tuple[str, str], bytes] = {}
        self._confirming = False
        self.confirms = PublisherConfirms()
        self.acks = PendingAcks(number)
        self._stopped: asyncio.Event | None = None
        self._taker: Callable[[Message], None] | None = None
        self._message: Message | None = None
        self._why = UnroutableError("")
        self._missing = -1
        self._pieces: list[bytes] = []

    async def request(self, asked: Any) -> Any:
        """Send a method and wait for its answer."""
        if self.error is not None:
            raise self.error
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers.append((asked.valid_responses, answer))
        self._line.write(command(asked, self.number))
        try:
            async with asyncio.timeout(self._line.deadline):
                return await answer
        except TimeoutError:
            away = BrokerUnavailableError(
                f"no answer to {asked.name} within {self._line.deadline:g} s", code="NO_ANSWER"
            )
            self._line.abort(away)
            raise away from None

    async def close(self) -> None:
        """Close it; what is not acknowledged goes back to its queue."""
        if self.error is None:
            self.flush()
            self.on_close = None
            await self.request(commands.Channel.Close(200, "done", 0, 0))
            self._line.forget(self.number)
            self.fail(ChannelClosedError("the channel is closed", code="CLOSED"))

    async def confirm(self) -> None:
        """From now on the broker confirms what is published."""
        await self.request(commands.Confirm.Select())
        self._confirming = True

    async def declare_exchange(self, name: str, kind: str = "direct", *, passive: bool = False) -> None:
        await self.request(commands.Exchange.Declare(0, name, kind, passive, True))

    async def declare_queue(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
    ) -> commands.Queue.DeclareOk:
        """Answers its name, how many messages wait in it, and how many consumers it has."""
        asked = commands.Queue.Declare(
            0, name, passive, durable, exclusive, auto_delete, arguments=dict(arguments or {})
        )
        found: commands.Queue.DeclareOk = await self.request(asked)
        return found

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        await self.request(commands.Queue.Bind(0, queue, exchange, routing_key))

    async def delete_queue(self, name: str) -> None:
        await self.request(commands.Queue.Delete(0, name))

    async def purge(self, name: str) -> int:
        """How many messages were removed."""
        answer = await self.request(commands.Queue.Purge(0, name))
        return int(answer.message_count)

    async def prefetch(self, count: int) -> None:
        """How many deliveries a consumer that begins after this may hold."""
        await self.request(commands.Basic.Qos(0, count, False))

    async def consume(
        self,
        queue: str,
        taker: Consumer,
        tag: str,
        on_cancel: Cancelled | None = None,
        *,
        exclusive: bool = False,
    ) -> None:
        """Hand every delivery to `taker`, within the loop and at once. `on_cancel`: the broker ended it."""
        key = tag.encode()
        self._consumers[key] = (taker, on_cancel)
        try:
            await self.request(commands.Basic.Consume(0, queue, tag, exclusive=exclusive))
        except asyncio.CancelledError:
            self._line.write(command(commands.Basic.Cancel(tag, nowait=True), self.number))
            raise
        except AmqpError:
            self._consumers.pop(key, None)
            raise

    async def cancel(self, tag: str) -> None:
        """End a consumer. Deliveries on their way still come to it until the broker has answered."""
        if tag.encode() in self._consumers:
            await self.request(commands.Basic.Cancel(tag))
            self._consumers.pop(tag.encode(), None)

    async def get(self, queue: str) -> Message | None:
        """One message, or None if there is none now."""
        found: Message | None = await self.request(commands.Basic.Get(0, queue))
        return found

    @property
    def is_clear(self) -> bool:
        """Whether a message may be published right now."""
        return self._stopped is None and self._line.is_clear

    async def clear(self) -> None:
        """Wait until messages may be published: the broker is short of memory, or slow, or said stop."""
        while not self.is_clear:
            if self.error is not None:
                raise self.error
            if self._stopped is not None:
                await self._stopped.wait()
            else:
                await self._line.clear()

    def publish(
        self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON
    ) -> asyncio.Future[None]:
        """Publish; the answer comes when the broker has taken it, or says why not. Goes out with all of this turn."""
        return self.publish_all(((exchange, routing_key, body, stamp),))

    def publish_all(
        self, messages: Iterable[Outgoing], future: asyncio.Future[None] | None = None
    ) -> asyncio.Future[None]:
        """The same for several, with one answer when all are taken, in the future that is given if one is."""
        if future is None:
            future = self._loop.create_future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        if not self._confirming:
            raise AmqpError("the channel does not confirm; call confirm() before publishing")
        batch = Batch(future, 0)
        parts: list[bytes] = []
        number, room, confirms = self.number, self._line.room, self.confirms
        for exchange, routing_key, body, stamp in messages:
            batch.left += 1
            serial = confirms.next(batch)
            way = self._ways.get((exchange, routing_key)) or self._way(self._ways, exchange, routing_key)
            parts.append(way)
            parts.append(content(number, stamp.properties(serial), body, room))
        if parts:
            self._line.write(b"".join(parts))
        else:
            future.set_result(None)
        return future

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON) -> None:
        """Publish without waiting for anything; what becomes of it is not told."""
        if self.error is None:
            serial = self.confirms.next(None) if self._confirming else 0
            way = self._posts.get((exchange, routing_key)) or self._way(self._posts, exchange, routing_key)
            self._line.write(way + content(self.number, stamp.properties(serial), body, self._line.room))

    def _way(self, known: dict[tuple[str, str], bytes], exchange: str, routing_key: str) -> bytes:
        if len(known) >= MAX_CACHED_ROUTES:
            known.clear()
        made = publish_command(self.number, exchange, routing_key, mandatory=known is self._ways)
        known[exchange, routing_key] = made
        return made

    def ack(self, tag: int) -> None:
        """Acknowledge; those of one turn travel together."""
        if self.error is None and self.acks.add(tag):
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the acks that were collected."""
        frames = self.acks.frames()
        if frames and self.error is None:
            self._line.write(frames)

    def nack(self, tag: int, *, requeue: bool) -> None:
        """Back to its queue, or to where its queue sends dead letters."""
        if self.error is None and self.acks.other(tag):
            self._line.write(nack_command(self.number, tag, requeue=requeue))

    def fail(self, error: AmqpError) -> None:
        """Nothing more will come."""
        if self.error is not None:
            return
        self.error = error
        if self._stopped is not None:
            self._stopped.set()
        while self._answers:
            _, answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(error)
        self.confirms.fail(error)
        self._consumers.clear()
        if self.on_close is not None:
            self.on_close(error)

    def on_deliver(self, data: bytes, start: int, end: int) -> None:
        """A delivery begins; its content follows."""
        if self._missing >= 0 or self._message is not None:
            raise ProtocolError(505, "a delivery within the content of another")
        consumer, self._message = read_deliver(data, start, end)
        found = self._consumers.get(consumer)
        self._taker = self._unwanted if found is None else found[0]
        self.acks.delivered(self._message.tag)

    def _unwanted(self, message: Message) -> None:
        """It was on its way when its consumer ended."""
        self.nack(message.tag, requeue=True)

    def on_header(self, data: bytes, start: int, end: int) -> None:
        if self._message is None or self._missing >= 0:
            raise ProtocolError(505, "a content header that nothing announced")
        size, self._message.raw = read_content(data, start, end)
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(501, f"a message of {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are taken")
        self._missing = size
        if size == 0:
            self._complete(b"")

    def on_body(self, piece: bytes) -> None:
        self._missing -= len(piece)
        if self._missing == 0 and not self._pieces:
            self._complete(piece)
            return
        if self._missing < 0:
            raise ProtocolError(505, "more content than its header announced")
        self._pieces.append(piece)
        if self._missing == 0:
            self._complete(b"".join(self._pieces))

    def _complete(self, body: bytes) -> None:
        message, taker = self._message, self._taker
        assert message is not None
        assert taker is not None
        message.body = body
        self._message, self._missing = None, -1
        if self._pieces:
            self._pieces = []
        taker(message)

    def on_command(self, index: int, told: Any) -> None:
        """Any method but a delivery and confirms."""
        if self._message is not None:
            raise ProtocolError(505, f"{told.name} within the content of a message")
        name = told.name
        if index == RETURN:
            self._begin(told, self._returned)
        elif index == GET_OK:
            self._begin(told, self._got, told.delivery_tag, told.redelivered)
            self.acks.delivered(told.delivery_tag)
        elif name == "Basic.Cancel":
            self._ended(told)
        elif name == "Channel.Flow":
            self._regulate(told.active)
        elif name == "Channel.Close":
            self._line.write(command(commands.Channel.CloseOk(), self.number))
            self._line.forget(self.number)
            text = f"{told.reply_code} {told.reply_text}"
            self.fail(ChannelClosedError(f"the broker closed the channel: {text}", told.reply_code))
        else:
            self._answer(name, None if name == "Basic.GetEmpty" else told)

    def _answer(self, name: str, value: Any) -> None:
        if not self._answers or name not in self._answers[0][0]:
            raise ProtocolError(503, f"{name} answers nothing that was asked")
        _, answer = self._answers.popleft()
        if not answer.done():
            answer.set_result(value)

    def _begin(self, told: Any, taker: Consumer, tag: int = 0, redelivered: bool = False) -> None:
        self._message = Message(b"", tag, redelivered, told.exchange, told.routing_key or "", b"")
        self._taker = taker
        if taker == self._returned:
            self._why = UnroutableError(
                f"{told.reply_code} {told.reply_text}: exchange `{told.exchange}`, routing key `{told.routing_key}`"
            )

    def _got(self, message: Message) -> None:
        asked = self._answers[0][1] if self._answers else None
        if asked is not None and asked.done():  # whoever asked has gone
            self._unwanted(message)
        self._answer("Basic.GetOk", message)

    def _returned(self, message: Message) -> None:
        number = ""
        try:
            number = message.properties.correlation_id or ""
        except Exception:
            raise ProtocolError(502, "a returned message whose header cannot be read") from None
        waited = self.confirms.returned(number, self._why)
        if not waited and self.on_return is not None:
            self.on_return(message, self._why)

    def _ended(self, told: Any) -> None:
        if not told.nowait:
            self._line.write(command(commands.Basic.CancelOk(told.consumer_tag), self.number))
        found = self._consumers.pop(told.consumer_tag.encode(), None)
        if found is not None and found[1] is not None:
            found[1](told.consumer_tag)

    def _regulate(self, active: bool) -> None:
        self._line.write(command(commands.Channel.FlowOk(active), self.number))
        if active and self._stopped is not None:
            self._stopped.set()
            self._stopped = None
        elif not active and self._stopped is None:
            self._stopped = asyncio.Event()
