"""A connection: greeting, tuning, heartbeats both ways, frames to their channels, and the end of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from typing import Any, cast

from pamqp import commands

from rune.adapters.rabbitmq.amqp.address import FRAME_MAX, Address
from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.errors import (
    REPLIES,
    AmqpError,
    BrokerUnavailableError,
    ConnectionRefusedByBrokerError,
    ProtocolError,
)
from rune.adapters.rabbitmq.amqp.frames import (
    ACK,
    BEAT,
    BODY,
    DELIVER,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    NACK,
    OVERHEAD,
    PROTOCOL,
    command,
    read_command,
    read_frame,
    read_index,
    read_settled,
)

log = logging.getLogger("rune.rabbitmq")

TICK = 1.0  # s between two looks at heartbeats and deadlines, at most
CHANNELS = 2047
CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Connection(asyncio.Protocol):
    """One connection to a broker. `ended` is done when it is over, with the reason."""

    def __init__(self, address: Address, name: str, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._name = name
        self.deadline = deadline
        self.room = FRAME_MAX - OVERHEAD
        self.server: dict[str, Any] = {}
        self.blocked: str | None = None
        self.error: AmqpError | None = None
        self.ended: asyncio.Future[AmqpError] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._most_channels = CHANNELS
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closing: asyncio.Future[None] | None = None
        self._expected = "Connection.Start"
        self._rest = b""
        self._out: list[bytes] = []
        self._paused = False
        self._waiting: list[asyncio.Future[None]] = []
        self._longest = FRAME_MAX
        self._heartbeat = 0
        self._beat_at = 0.0
        self._heard = self._sent = False
        self._silent_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def version(self) -> tuple[int, ...]:
        """The broker's version: (3, 10, 8)."""
        parts = str(self.server.get("version", "")).split("-")[0].split(".")
        return tuple(int(each) for each in parts if each.isdecimal())

    async def channel(self) -> Channel:
        """A new channel."""
        if self.error is not None:
            raise self.error
        free = (each for each in range(1, self._most_channels + 1) if each not in self._channels)
        number = next(free, None)
        if number is None:
            raise AmqpError("all channels of the connection are in use", code="NO_CHANNEL")
        made = self._channels[number] = Channel(self, number)
        await made.request(commands.Channel.Open())
        return made

    async def opened(self) -> None:
        """Wait until the broker has let us in."""
        await self._opened

    async def close(self) -> None:
        """Say good-bye; whoever does not answer in time is left, and so is one whose closing is cancelled."""
        try:
            if self.error is None and self._closing is None and self._transport is not None:
                await self._part()
        finally:
            self.abort(BrokerUnavailableError("the connection is closed", code="CLOSED"))
        await asyncio.wait((self.ended,), timeout=self.deadline)

    async def _part(self) -> None:
        for each in list(self._channels.values()):
            each.flush()
            each.on_close = None
        self._closing = self._loop.create_future()
        self.write(command(commands.Connection.Close(200, "done", 0, 0), 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.deadline):
                await self._closing

    def abort(self, error: AmqpError) -> None:
        """End it at once."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    def write(self, data: bytes) -> None:
        """Goes out with all else of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
            self._sent = True
        self._out.clear()

    @property
    def is_clear(self) -> bool:
        """Whether messages may be published now."""
        return self.blocked is None and not self._paused

    async def clear(self) -> None:
        """Wait until they may, or until the connection is gone."""
        while not self.is_clear:
            if self.error is not None:
                raise self.error
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _let_pass(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(PROTOCOL)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._let_pass()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            BrokerUnavailableError(
                f"the connection to {self._address} was lost: {exc or 'closed by the broker'}"
            )
        )
        if not self.ended.done():
            assert self.error is not None
            self.ended.set_result(self.error)

    def _end(self, error: AmqpError) -> None:
        """Tell everybody who waits for anything."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # nobody may be waiting for it any more
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        for each in list(self._channels.values()):
            each.fail(error)
        self._channels.clear()
        self._let_pass()
        if self._transport is None and not self.ended.done():
            self.ended.set_result(error)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._rest:
            data = self._rest + data
        if self.error is not None:
            return
        try:
            self._rest = data[self._frames(data) :]
        except ProtocolError as broken:
            self._protest(broken)
        except (IndexError, UnicodeDecodeError, struct.error):
            self._protest(ProtocolError(502, "a frame that cannot be read"))

    def _frames(self, data: bytes) -> int:
        """Handle every whole frame; answers where the rest begins."""
        at, size = 0, len(data)
        channels = self._channels
        while size - at > 7:
            kind, number, length = read_frame(data, at)
            start = at + 7
            end = start + length
            if length > self._longest:
                raise ProtocolError(501, f"a frame of {length:,} bytes; {self._longest:,} were agreed on")
            if end >= size:
                break
            if data[end] != END:
                raise ProtocolError(501, "a frame that does not end where it should")
            at = end + 1
            channel = channels.get(number)
            if kind == METHOD:
                (index,) = read_index(data, start)
                if channel is None:
                    self._on_command(number, index, data, start, end)
                elif index == DELIVER:
                    channel.on_deliver(data, start + 4, end)
                elif index in (ACK, NACK):
                    tag, bits = read_settled(data, start + 4, end)
                    channel.confirms.settle(tag, multiple=bits & 1 == 1, taken=index == ACK)
                else:
                    channel.on_command(index, read_command(data, start, end))
            elif kind == HEARTBEAT:
                continue
            elif channel is None:
                self._unknown(number)
            elif kind == HEADER:
                channel.on_header(data, start, end)
            elif kind == BODY:
                channel.on_body(data[start:end])
            else:
                raise ProtocolError(501, f"frame type {kind} is unknown")
            if self.error is not None:
                return size
        return at

    def _unknown(self, number: int) -> None:
        if number == 0 or number > self._most_channels:
            raise ProtocolError(504, f"content on channel {number}")

    def _protest(self, broken: ProtocolError) -> None:
        """The other side does not keep to the protocol: say so, and go."""
        code = REPLIES.get(broken.reply, "FRAME_ERROR")
        if self._transport is not None and not self._transport.is_closing():
            text = str(broken)[:200]
            self._transport.write(command(commands.Connection.Close(broken.reply, text, 0, 0), 0))
            self._transport.close()
        error = BrokerUnavailableError(f"{self._address} broke the protocol: {broken}", code=code)
        self._end(error)
        self._rest = b""
        self._loop.call_later(TICK, self.abort, error)

    def _on_command(self, number: int, index: int, data: bytes, start: int, end: int) -> None:
        if number:
            if number > self._most_channels:
                raise ProtocolError(504, f"a method on channel {number}")
            return  # a channel that was closed while this was on its way
        told = read_command(data, start, end)
        name = told.name
        if name == "Connection.Blocked":
            self.blocked = told.reason or "no reason given"
            log.warning("%s takes no messages: %s", self._address, self.blocked)
        elif name == "Connection.Unblocked":
            self.blocked = None
            self._let_pass()
        elif name == "Connection.Close":
            self._closed_by_broker(told)
        elif name == "Connection.CloseOk" and self._closing is not None:
            if not self._closing.done():
                self._closing.set_result(None)
        elif name == self._expected:
            self._greet(told)
        else:
            raise ProtocolError(503, f"{name} where {self._expected or 'nothing'} was expected")

    def _closed_by_broker(self, told: Any) -> None:
        text = f"{self._address}: {told.reply_code} {told.reply_text}"
        code = REPLIES.get(told.reply_code)
        if self._transport is not None:
            self._transport.write(command(commands.Connection.CloseOk(), 0))
            self._transport.close()
        if self._opened.done():
            self._end(BrokerUnavailableError(f"the broker closed the connection: {text}", code=code))
        else:
            self._end(ConnectionRefusedByBrokerError(text, code=code))

    def _greet(self, told: Any) -> None:
        if self._expected == "Connection.Start":
            self._start(told)
        elif self._expected == "Connection.Tune":
            self._tune(told)
        else:
            self._expected = ""
            if not self._opened.done():
                self._opened.set_result(None)

    def _start(self, told: Any) -> None:
        self.server = dict(told.server_properties or {})
        if "PLAIN" not in str(told.mechanisms).split():
            raise ProtocolError(530, f"the broker does not take passwords, only {told.mechanisms}")
        about: dict[str, Any] = {
            "product": "rune",
            "platform": "Python",
            "connection_name": self._name,
            "capabilities": CAPABILITIES,
        }
        words = f"\0{self._address.user}\0{self._address.password}"
        self.write(command(commands.Connection.StartOk(about, "PLAIN", words, "en_US"), 0))
        self._expected = "Connection.Tune"

    def _tune(self, told: Any) -> None:
        address = self._address
        longest = _lesser(told.frame_max or 0, address.frame_max) or FRAME_MAX
        if longest < 4096:
            raise ProtocolError(530, f"frames of {longest} bytes are too small")
        self._heartbeat = min(told.heartbeat or 0, address.heartbeat) if told.heartbeat else address.heartbeat
        if address.heartbeat == 0:
            self._heartbeat = 0
        self._most_channels = _lesser(told.channel_max or 0, address.channel_max) or CHANNELS
        self._longest = longest
        self.room = longest - OVERHEAD
        self.write(command(commands.Connection.TuneOk(self._most_channels, longest, self._heartbeat), 0))
        self.write(command(commands.Connection.Open(address.vhost), 0))
        self._expected = "Connection.OpenOk"
        self._silent_since = self._beat_at = self._loop.time()
        self._tick()

    def _tick(self) -> None:
        """Look at heartbeats and deadlines."""
        if self.error is not None:
            return
        now = self._loop.time()
        if self._heard:
            self._silent_since, self._heard = now, False
        if self._heartbeat:
            if now - self._silent_since > 2 * self._heartbeat:
                text = f"{self._address} was silent for {now - self._silent_since:.0f} s"
                self.abort(BrokerUnavailableError(text, code="HEARTBEAT_MISSED"))
                return
            if self._sent:
                self._beat_at, self._sent = now, False
            elif now - self._beat_at >= self._heartbeat / 2 - TICK / 2:
                self.write(BEAT)
        late = [each.confirms.overdue(now, self.deadline) for each in self._channels.values()]
        if any(late) and self.blocked is None:
            self.abort(BrokerUnavailableError(f"{self._address} confirms nothing", code="PUBLISH_DEADLINE"))
            return
        pause = min(TICK, self.deadline / 4, self._heartbeat / 4 if self._heartbeat else TICK)
        self._timer = self._loop.call_later(pause, self._tick)


def _lesser(one: int, other: int) -> int:
    """The smaller of two limits, of which 0 means none."""
    return min(one, other) if one and other else one or other
