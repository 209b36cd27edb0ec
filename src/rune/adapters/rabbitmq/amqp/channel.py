"""An AMQP channel: requests and replies, publishing with confirms, consumers, and acknowledgements.

Confirms and acknowledgements are tracked per message, so that many of them travel in one frame.
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

MAX_CACHED_ROUTES = 1024
MAX_MESSAGE_BYTES = 128 * 1024 * 1024
LARGE_BYTES = 1024 * 1024
BYTES_PER_S = 1024 * 1024
"""Of large messages, this much needs to be confirmed within a second; it takes longer only on a broken connection."""


def transfer_s(size: int) -> float:
    """Return how much longer than a small message one of this size may take until it is confirmed."""
    return size / BYTES_PER_S if size > LARGE_BYTES else 0.0


OnMessage = Callable[[Message], None]
OnCancel = Callable[[str], None]
Outgoing = tuple[str, str, bytes, MessageProperties]
"""Exchange, routing key, body and properties of a message to publish."""


class Batch(msgspec.Struct, gc=False):
    """Published messages with one common result."""

    future: asyncio.Future[None]
    left: int
    error: AmqpError | None = None


class PublisherConfirms:
    """Published messages without a confirm. Confirms may arrive out of order and for many messages at once."""

    def __init__(self) -> None:
        self.last = 0
        self._waiting: dict[int, Batch] = {}
        self._large: dict[int, float] = {}
        self._marks: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self, batch: Batch | None, size: int = 0) -> int:
        """Return the number of the message that is published next."""
        self.last += 1
        if size > LARGE_BYTES:
            self._large[self.last] = transfer_s(size)
        if batch is not None:
            self._waiting[self.last] = batch
        return self.last

    def settle(self, tag: int, *, multiple: bool, taken: bool) -> None:
        """Handle an ack or nack of one message, or of all messages up to it."""
        if tag > self.last:
            raise ProtocolError(503, f"message {tag} is confirmed and was never published")
        waiting = self._waiting
        if not multiple:
            batch = waiting.pop(tag, None)
            if batch is not None:
                self._settle_one(batch, taken)
            return
        upto = tag or self.last
        while waiting:
            first = next(iter(waiting))
            if first > upto:
                return
            self._settle_one(waiting.pop(first), taken)

    def _settle_one(self, batch: Batch, taken: bool) -> None:
        batch.left -= 1
        if not taken and batch.error is None:
            batch.error = NackedError("the broker rejected a message")
        if batch.left == 0 and not batch.future.done():
            if batch.error is None:
                batch.future.set_result(None)
            else:
                batch.future.set_exception(batch.error)

    def returned(self, number: str, error: UnroutableError) -> bool:
        """Handle a returned message, whose confirm follows. Return whether a caller waits for it."""
        batch = self._waiting.get(int(number)) if number.isascii() and number.isdecimal() else None
        if batch is not None and batch.error is None:
            batch.error = error
        return batch is not None

    def overdue(self, now: float, deadline: float) -> bool:
        """Fail messages without a confirm since the deadline and return whether there were any. Called periodically:
        send times are recorded per call, not per message. What is sent with large messages waits behind them."""
        self._marks.append((now, self.last))
        self._large = {number: each for number, each in self._large.items() if number in self._waiting}
        deadline += sum(self._large.values())
        upto = 0
        while self._marks and self._marks[0][0] <= now - deadline:
            upto = self._marks.popleft()[1]
        late = list(itertools.takewhile(lambda each: each <= upto, self._waiting))
        self._fail(late, BrokerUnavailableError(f"no confirm within {deadline:g} s", code="PUBLISH_DEADLINE"))
        return bool(late)

    def fail(self, error: AmqpError) -> None:
        """Fail all unconfirmed messages."""
        self._fail(list(self._waiting), error)

    def _fail(self, numbers: list[int], error: AmqpError) -> None:
        for each in numbers:
            batch = self._waiting.pop(each)
            batch.left -= 1
            if not batch.future.done():
                batch.future.set_exception(error)


class PendingAcks:
    """Collects the acks of one event loop turn into as few frames as possible: one frame acknowledges all deliveries
    before the first that is still unacknowledged."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        # In the order of their tags.
        self._held: dict[int, None] = {}
        self._now: list[int] = []

    def __len__(self) -> int:
        return len(self._held)

    def delivered(self, tag: int) -> None:
        self._held[tag] = None

    def add(self, tag: int) -> bool:
        """Add a delivery to acknowledge and return whether it is the first of this turn. Unknown tags are ignored."""
        if tag not in self._held:
            return False
        del self._held[tag]
        self._now.append(tag)
        return len(self._now) == 1

    def other(self, tag: int) -> bool:
        """Remove a delivery that is not acknowledged but rejected; return whether it was unacknowledged."""
        if tag not in self._held:
            return False
        del self._held[tag]
        return True

    def frames(self) -> bytes:
        """Return the frames that acknowledge all deliveries added since the last call."""
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


class FrameWriter(Protocol):
    """What a channel needs of its connection."""

    room: int
    deadline: float

    def write(self, data: bytes) -> None: ...
    def abort(self, error: AmqpError) -> None: ...
    def forget(self, number: int) -> None: ...
    async def clear(self) -> None: ...
    @property
    def is_clear(self) -> bool: ...


class Channel:
    """One channel. `on_close` is called once with the reason, unless the client closed the channel."""

    def __init__(self, writer: FrameWriter, number: int) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self.number = number
        self.error: AmqpError | None = None
        self.on_close: Callable[[AmqpError], None] | None = None
        self.on_return: Callable[[Message, UnroutableError], None] | None = None
        self._replies: deque[tuple[list[str], asyncio.Future[Any]]] = deque()
        self._consumers: dict[bytes, tuple[OnMessage, OnCancel | None]] = {}
        self._routes: dict[tuple[str, str], bytes] = {}
        self._post_routes: dict[tuple[str, str], bytes] = {}
        self._confirming = False
        self.confirms = PublisherConfirms()
        self.acks = PendingAcks(number)
        self._flow_stopped: asyncio.Event | None = None
        self._receiver: Callable[[Message], None] | None = None
        self._message: Message | None = None
        self._return_error = UnroutableError("")
        self._remaining_bytes = -1
        self._pieces: list[bytes] = []

    async def request(self, method: Any) -> Any:
        """Send a method and return its reply."""
        if self.error is not None:
            raise self.error
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._replies.append((method.valid_responses, reply))
        self._writer.write(command(method, self.number))
        try:
            async with asyncio.timeout(self._writer.deadline):
                return await reply
        except TimeoutError:
            unavailable = BrokerUnavailableError(
                f"no reply to {method.name} within {self._writer.deadline:g} s", code="NO_ANSWER"
            )
            self._writer.abort(unavailable)
            raise unavailable from None

    async def close(self) -> None:
        """Close the channel; unacknowledged messages return to their queues."""
        if self.error is None:
            self.flush()
            self.on_close = None
            await self.request(commands.Channel.Close(200, "done", 0, 0))
            self._writer.forget(self.number)
            self.fail(ChannelClosedError("the channel is closed", code="CLOSED"))

    async def confirm(self) -> None:
        """Turn on publisher confirms."""
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
        """Declare a queue and return its name, its number of messages and its number of consumers."""
        method = commands.Queue.Declare(
            0, name, passive, durable, exclusive, auto_delete, arguments=dict(arguments or {})
        )
        found: commands.Queue.DeclareOk = await self.request(method)
        return found

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        await self.request(commands.Queue.Bind(0, queue, exchange, routing_key))

    async def delete_queue(self, name: str) -> None:
        await self.request(commands.Queue.Delete(0, name))

    async def purge(self, name: str) -> int:
        """Remove all messages of a queue and return how many."""
        reply = await self.request(commands.Queue.Purge(0, name))
        return int(reply.message_count)

    async def prefetch(self, count: int) -> None:
        """Limit the unacknowledged deliveries of each consumer that is started after this call."""
        await self.request(commands.Basic.Qos(0, count, False))

    async def consume(
        self,
        queue: str,
        on_message: OnMessage,
        tag: str,
        on_cancel: OnCancel | None = None,
        *,
        exclusive: bool = False,
    ) -> None:
        """Start a consumer. `on_message` is called directly from the event loop, `on_cancel` if the broker ends the
        consumer."""
        key = tag.encode()
        self._consumers[key] = (on_message, on_cancel)
        try:
            await self.request(commands.Basic.Consume(0, queue, tag, exclusive=exclusive))
        except asyncio.CancelledError:
            self._writer.write(command(commands.Basic.Cancel(tag, nowait=True), self.number))
            raise
        except AmqpError:
            self._consumers.pop(key, None)
            raise

    async def cancel(self, tag: str) -> None:
        """End a consumer. It still receives deliveries in transit until the broker has replied."""
        if tag.encode() in self._consumers:
            await self.request(commands.Basic.Cancel(tag))
            self._consumers.pop(tag.encode(), None)

    async def get(self, queue: str) -> Message | None:
        """Return one message, or None if the queue is empty."""
        found: Message | None = await self.request(commands.Basic.Get(0, queue))
        return found

    @property
    def is_clear(self) -> bool:
        """Whether messages may be published now."""
        return self._flow_stopped is None and self._writer.is_clear

    async def clear(self) -> None:
        """Wait until messages may be published: the broker may be short of memory, slow, or have stopped the flow."""
        while not self.is_clear:
            if self.error is not None:
                raise self.error
            if self._flow_stopped is not None:
                await self._flow_stopped.wait()
            else:
                await self._writer.clear()

    def publish(
        self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON
    ) -> asyncio.Future[None]:
        """Publish a message; the future resolves when the broker has confirmed it and fails if it was rejected."""
        return self.publish_all(((exchange, routing_key, body, stamp),))

    def publish_all(
        self, messages: Iterable[Outgoing], future: asyncio.Future[None] | None = None
    ) -> asyncio.Future[None]:
        """Publish several messages; the future (`future` if given) resolves when all are confirmed."""
        if future is None:
            future = self._loop.create_future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        if not self._confirming:
            raise AmqpError("the channel does not confirm; call confirm() before publishing")
        batch = Batch(future, 0)
        parts: list[bytes] = []
        number, room, confirms = self.number, self._writer.room, self.confirms
        for exchange, routing_key, body, stamp in messages:
            batch.left += 1
            serial = confirms.next(batch, len(body))
            route = self._routes.get((exchange, routing_key)) or self._add_route(
                self._routes, exchange, routing_key
            )
            parts.append(route)
            parts.append(content(number, stamp.properties(serial), body, room))
        if parts:
            self._writer.write(b"".join(parts))
        else:
            future.set_result(None)
        return future

    def post(self, exchange: str, routing_key: str, body: bytes, stamp: MessageProperties = JSON) -> None:
        """Publish a message without waiting for a confirm; it may be lost."""
        if self.error is None:
            serial = self.confirms.next(None) if self._confirming else 0
            route = self._post_routes.get((exchange, routing_key)) or self._add_route(
                self._post_routes, exchange, routing_key
            )
            self._writer.write(
                route + content(self.number, stamp.properties(serial), body, self._writer.room)
            )

    def _add_route(self, cache: dict[tuple[str, str], bytes], exchange: str, routing_key: str) -> bytes:
        if len(cache) >= MAX_CACHED_ROUTES:
            cache.clear()
        route = publish_command(self.number, exchange, routing_key, mandatory=cache is self._routes)
        cache[exchange, routing_key] = route
        return route

    def ack(self, tag: int) -> None:
        """Acknowledge a delivery, together with all others of this event loop turn."""
        if self.error is None and self.acks.add(tag):
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the collected acks."""
        frames = self.acks.frames()
        if frames and self.error is None:
            self._writer.write(frames)

    def nack(self, tag: int, *, requeue: bool) -> None:
        """Reject a delivery: return it to its queue, or to the queue's dead letter exchange."""
        if self.error is None and self.acks.other(tag):
            self._writer.write(nack_command(self.number, tag, requeue=requeue))

    def fail(self, error: AmqpError) -> None:
        """Fail all pending operations and close the channel."""
        if self.error is not None:
            return
        self.error = error
        if self._flow_stopped is not None:
            self._flow_stopped.set()
        while self._replies:
            _, reply = self._replies.popleft()
            if not reply.done():
                reply.set_exception(error)
        self.confirms.fail(error)
        self._consumers.clear()
        if self.on_close is not None:
            self.on_close(error)

    def on_deliver(self, data: bytes, start: int, end: int) -> None:
        """Handle the start of a delivery; its content follows."""
        if self._remaining_bytes >= 0 or self._message is not None:
            raise ProtocolError(505, "a delivery within the content of another")
        consumer, self._message = read_deliver(data, start, end)
        found = self._consumers.get(consumer)
        self._receiver = self._return_to_queue if found is None else found[0]
        self.acks.delivered(self._message.tag)

    def _return_to_queue(self, message: Message) -> None:
        """Reject a delivery that was in transit when its consumer ended."""
        self.nack(message.tag, requeue=True)

    def on_header(self, data: bytes, start: int, end: int) -> None:
        if self._message is None or self._remaining_bytes >= 0:
            raise ProtocolError(505, "a content header that nothing announced")
        size, self._message.raw = read_content(data, start, end)
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                501, f"a message of {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are accepted"
            )
        self._remaining_bytes = size
        if size == 0:
            self._complete(b"")

    def on_body(self, piece: bytes) -> None:
        self._remaining_bytes -= len(piece)
        if self._remaining_bytes == 0 and not self._pieces:
            self._complete(piece)
            return
        if self._remaining_bytes < 0:
            raise ProtocolError(505, "more content than its header announced")
        self._pieces.append(piece)
        if self._remaining_bytes == 0:
            self._complete(b"".join(self._pieces))

    def _complete(self, body: bytes) -> None:
        message, receiver = self._message, self._receiver
        assert message is not None
        assert receiver is not None
        message.body = body
        self._message, self._remaining_bytes = None, -1
        if self._pieces:
            self._pieces = []
        receiver(message)

    def on_command(self, index: int, method: Any) -> None:
        """Handle any method except deliveries and confirms."""
        if self._message is not None:
            raise ProtocolError(505, f"{method.name} within the content of a message")
        name = method.name
        if index == RETURN:
            self._begin_message(method, self._on_returned)
        elif index == GET_OK:
            self._begin_message(method, self._on_get_ok, method.delivery_tag, method.redelivered)
            self.acks.delivered(method.delivery_tag)
        elif name == "Basic.Cancel":
            self._on_consumer_cancelled(method)
        elif name == "Channel.Flow":
            self._on_flow(method.active)
        elif name == "Channel.Close":
            self._writer.write(command(commands.Channel.CloseOk(), self.number))
            self._writer.forget(self.number)
            text = f"{method.reply_code} {method.reply_text}"
            self.fail(ChannelClosedError(f"the broker closed the channel: {text}", method.reply_code))
        else:
            self._resolve_reply(name, None if name == "Basic.GetEmpty" else method)

    def _resolve_reply(self, name: str, value: Any) -> None:
        if not self._replies or name not in self._replies[0][0]:
            raise ProtocolError(503, f"{name} is a reply to no request")
        _, reply = self._replies.popleft()
        if not reply.done():
            reply.set_result(value)

    def _begin_message(
        self, method: Any, receiver: OnMessage, tag: int = 0, redelivered: bool = False
    ) -> None:
        self._message = Message(b"", tag, redelivered, method.exchange, method.routing_key or "", b"")
        self._receiver = receiver
        if receiver == self._on_returned:
            self._return_error = UnroutableError(
                f"{method.reply_code} {method.reply_text}:"
                f" exchange `{method.exchange}`, routing key `{method.routing_key}`"
            )

    def _on_get_ok(self, message: Message) -> None:
        reply = self._replies[0][1] if self._replies else None
        # The caller was cancelled.
        if reply is not None and reply.done():
            self._return_to_queue(message)
        self._resolve_reply("Basic.GetOk", message)

    def _on_returned(self, message: Message) -> None:
        number = ""
        try:
            number = message.properties.correlation_id or ""
        except Exception:
            raise ProtocolError(502, "a returned message whose header cannot be read") from None
        is_awaited = self.confirms.returned(number, self._return_error)
        if not is_awaited and self.on_return is not None:
            self.on_return(message, self._return_error)

    def _on_consumer_cancelled(self, method: Any) -> None:
        if not method.nowait:
            self._writer.write(command(commands.Basic.CancelOk(method.consumer_tag), self.number))
        found = self._consumers.pop(method.consumer_tag.encode(), None)
        if found is not None and found[1] is not None:
            found[1](method.consumer_tag)

    def _on_flow(self, active: bool) -> None:
        self._writer.write(command(commands.Channel.FlowOk(active), self.number))
        if active and self._flow_stopped is not None:
            self._flow_stopped.set()
            self._flow_stopped = None
        elif not active and self._flow_stopped is None:
            self._flow_stopped = asyncio.Event()
