"""An AMQP connection: address, handshake, heartbeats in both directions, dispatch of frames to channels, and shutdown.

The address is `amqp[s]://user:password@host:port/vhost?option=value`, every part percent-encoded. Options, as RabbitMQ
names them: `heartbeat` (s, 0 for none), `connection_timeout` (ms), `frame_max` (bytes), `channel_max`, and with `amqps`
`cacertfile`, `certfile`, `keyfile`, `verify` (`verify_peer` or `verify_none`), `server_name_indication`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pamqp import commands

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.errors import (
    REPLIES,
    AmqpError,
    BrokerUnavailableError,
    ConnectionRefusedByBrokerError,
    InvalidAddressError,
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

MAX_TICK_S = 1.0
"""Longest interval between two checks of heartbeats and deadlines."""

MAX_CHANNELS = 2047
CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}

PORTS = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_S = 30
CONNECTION_TIMEOUT_MS = 10_000
FRAME_MAX = 131_072
MIN_FRAME_BYTES = 4096
MAX_OPTION_VALUES = {
    "heartbeat": 65_535,
    "connection_timeout": 600_000,
    "frame_max": 2**31 - 1,
    "channel_max": 65_535,
}

TEXT_OPTIONS = {"cacertfile", "certfile", "keyfile", "verify", "server_name_indication"}


class Connection(asyncio.Protocol):
    """One connection to a broker. The future `ended` resolves to the reason when the connection has ended."""

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
        self._channel_max = MAX_CHANNELS
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closing: asyncio.Future[None] | None = None
        self._expected = "Connection.Start"
        self._rest = b""
        self._out: list[bytes] = []
        self._paused = False
        self._waiting: list[asyncio.Future[None]] = []
        self._frame_max = FRAME_MAX
        self._heartbeat = 0
        self._beat_at = 0.0
        self._received = self._sent = False
        self._silent_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the broker, such as (3, 10, 8)."""
        parts = str(self.server.get("version", "")).split("-")[0].split(".")
        return tuple(int(each) for each in parts if each.isdecimal())

    async def channel(self) -> Channel:
        """Open a channel."""
        if self.error is not None:
            raise self.error
        free = (each for each in range(1, self._channel_max + 1) if each not in self._channels)
        number = next(free, None)
        if number is None:
            raise AmqpError("all channels of the connection are in use", code="NO_CHANNEL")
        channel = self._channels[number] = Channel(self, number)
        await channel.request(commands.Channel.Open())
        return channel

    async def opened(self) -> None:
        """Wait until the handshake is complete."""
        await self._opened

    async def close(self) -> None:
        """Close the connection with the closing handshake, and abort it if the broker does not reply in time or this
        call is cancelled."""
        try:
            if self.error is None and self._closing is None and self._transport is not None:
                await self._close_handshake()
        finally:
            self.abort(BrokerUnavailableError("the connection is closed", code="CLOSED"))
        await asyncio.wait((self.ended,), timeout=self.deadline)

    async def _close_handshake(self) -> None:
        for each in list(self._channels.values()):
            each.flush()
            each.on_close = None
        self._closing = self._loop.create_future()
        self.write(command(commands.Connection.Close(200, "done", 0, 0), 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.deadline):
                await self._closing

    def abort(self, error: AmqpError) -> None:
        """End the connection without the closing handshake."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    def write(self, data: bytes) -> None:
        """Queue frames; all frames of one event loop turn are written together."""
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
        """Wait until messages may be published; raise if the connection is lost."""
        while not self.is_clear:
            if self.error is not None:
                raise self.error
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _wake_publishers(self) -> None:
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
        self._wake_publishers()

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
        """Record the error and fail every pending operation."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if not self._opened.done():
            self._opened.set_exception(error)
            # Mark it as retrieved: the caller may have stopped waiting.
            self._opened.exception()
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        for each in list(self._channels.values()):
            each.fail(error)
        self._channels.clear()
        self._wake_publishers()
        if self._transport is None and not self.ended.done():
            self.ended.set_result(error)

    def data_received(self, data: bytes) -> None:
        self._received = True
        if self._rest:
            data = self._rest + data
        if self.error is not None:
            return
        try:
            self._rest = data[self._handle_frames(data) :]
        except ProtocolError as error:
            self._close_for_violation(error)
        except (IndexError, UnicodeDecodeError, struct.error):
            self._close_for_violation(ProtocolError(502, "a frame that cannot be read"))

    def _handle_frames(self, data: bytes) -> int:
        """Handle every complete frame and return where the rest begins."""
        at, size = 0, len(data)
        channels = self._channels
        while size - at > 7:
            kind, number, length = read_frame(data, at)
            start = at + 7
            end = start + length
            if length > self._frame_max:
                raise ProtocolError(501, f"a frame of {length:,} bytes; {self._frame_max:,} were agreed on")
            if end >= size:
                break
            if data[end] != END:
                raise ProtocolError(501, "a frame that does not end where it should")
            at = end + 1
            channel = channels.get(number)
            if kind == METHOD and channel is not None:
                _handle_method(channel, data, start, end)
            elif kind == METHOD:
                self._on_command(number, read_index(data, start)[0], data, start, end)
            elif kind == HEARTBEAT:
                continue
            elif channel is None:
                self._check_channel(number)
            elif kind == HEADER:
                channel.on_header(data, start, end)
            elif kind == BODY:
                channel.on_body(data[start:end])
            else:
                raise ProtocolError(501, f"frame type {kind} is unknown")
            if self.error is not None:
                return size
        return at

    def _check_channel(self, number: int) -> None:
        """Raise for content on an invalid channel; content for a channel that was closed meanwhile is ignored."""
        if number == 0 or number > self._channel_max:
            raise ProtocolError(504, f"content on channel {number}")

    def _close_for_violation(self, violation: ProtocolError) -> None:
        """Close the connection and report the protocol violation to the broker."""
        code = REPLIES.get(violation.reply, "FRAME_ERROR")
        if self._transport is not None and not self._transport.is_closing():
            text = str(violation)[:200]
            self._transport.write(command(commands.Connection.Close(violation.reply, text, 0, 0), 0))
            self._transport.close()
        error = BrokerUnavailableError(f"{self._address} violated the protocol: {violation}", code=code)
        self._end(error)
        self._rest = b""
        self._loop.call_later(MAX_TICK_S, self.abort, error)

    def _on_command(self, number: int, index: int, data: bytes, start: int, end: int) -> None:
        if number:
            if number > self._channel_max:
                raise ProtocolError(504, f"a method on channel {number}")
            # The channel was closed while this frame was in transit.
            return
        method = read_command(data, start, end)
        name = method.name
        if name == "Connection.Blocked":
            self.blocked = method.reason or "no reason given"
            log.warning("%s accepts no messages: %s", self._address, self.blocked)
        elif name == "Connection.Unblocked":
            self.blocked = None
            self._wake_publishers()
        elif name == "Connection.Close":
            self._closed_by_broker(method)
        elif name == "Connection.CloseOk" and self._closing is not None:
            if not self._closing.done():
                self._closing.set_result(None)
        elif name == self._expected:
            self._continue_handshake(method)
        else:
            raise ProtocolError(503, f"{name} where {self._expected or 'nothing'} was expected")

    def _closed_by_broker(self, method: Any) -> None:
        text = f"{self._address}: {method.reply_code} {method.reply_text}"
        code = REPLIES.get(method.reply_code)
        if self._transport is not None:
            self._transport.write(command(commands.Connection.CloseOk(), 0))
            self._transport.close()
        if self._opened.done():
            self._end(BrokerUnavailableError(f"the broker closed the connection: {text}", code=code))
        else:
            self._end(ConnectionRefusedByBrokerError(text, code=code))

    def _continue_handshake(self, method: Any) -> None:
        if self._expected == "Connection.Start":
            self._start(method)
        elif self._expected == "Connection.Tune":
            self._tune(method)
        else:
            self._expected = ""
            if not self._opened.done():
                self._opened.set_result(None)

    def _start(self, method: Any) -> None:
        self.server = dict(method.server_properties or {})
        if "PLAIN" not in str(method.mechanisms).split():
            raise ProtocolError(530, f"the broker does not accept passwords, only {method.mechanisms}")
        properties: dict[str, Any] = {
            "product": "rune",
            "platform": "Python",
            "connection_name": self._name,
            "capabilities": CAPABILITIES,
        }
        login = f"\0{self._address.user}\0{self._address.password}"
        self.write(command(commands.Connection.StartOk(properties, "PLAIN", login, "en_US"), 0))
        self._expected = "Connection.Tune"

    def _tune(self, method: Any) -> None:
        address = self._address
        frame_max = _smaller_limit(method.frame_max or 0, address.frame_max) or FRAME_MAX
        if frame_max < 4096:
            raise ProtocolError(530, f"frames of {frame_max} bytes are too small")
        self._heartbeat = address.heartbeat
        if method.heartbeat:
            self._heartbeat = min(method.heartbeat, address.heartbeat)
        self._channel_max = _smaller_limit(method.channel_max or 0, address.channel_max) or MAX_CHANNELS
        self._frame_max = frame_max
        self.room = frame_max - OVERHEAD
        self.write(command(commands.Connection.TuneOk(self._channel_max, frame_max, self._heartbeat), 0))
        self.write(command(commands.Connection.Open(address.vhost), 0))
        self._expected = "Connection.OpenOk"
        self._silent_since = self._beat_at = self._loop.time()
        self._tick()

    def _tick(self) -> None:
        """Check heartbeats and deadlines."""
        if self.error is not None:
            return
        now = self._loop.time()
        if self._received:
            self._silent_since, self._received = now, False
        if self._heartbeat:
            if now - self._silent_since > 2 * self._heartbeat:
                text = f"{self._address} was silent for {now - self._silent_since:.0f} s"
                self.abort(BrokerUnavailableError(text, code="HEARTBEAT_MISSED"))
                return
            if self._sent:
                self._beat_at, self._sent = now, False
            elif now - self._beat_at >= self._heartbeat / 2 - MAX_TICK_S / 2:
                self.write(BEAT)
        late = [each.confirms.overdue(now, self.deadline) for each in self._channels.values()]
        if any(late) and self.blocked is None:
            self.abort(BrokerUnavailableError(f"{self._address} confirms nothing", code="PUBLISH_DEADLINE"))
            return
        delay = min(MAX_TICK_S, self.deadline / 4, self._heartbeat / 4 if self._heartbeat else MAX_TICK_S)
        self._timer = self._loop.call_later(delay, self._tick)


def _smaller_limit(one: int, other: int) -> int:
    """Return the smaller of two limits, where 0 means unlimited."""
    return min(one, other) if one and other else one or other


def _handle_method(channel: Channel, data: bytes, start: int, end: int) -> None:
    (index,) = read_index(data, start)
    if index == DELIVER:
        channel.on_deliver(data, start + 4, end)
    elif index in (ACK, NACK):
        tag, bits = read_settled(data, start + 4, end)
        channel.confirms.settle(tag, multiple=bits & 1 == 1, taken=index == ACK)
    else:
        channel.on_command(index, read_command(data, start, end))


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed broker URL."""

    host: str
    port: int
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    secure: bool = False
    heartbeat: int = HEARTBEAT_S
    connection_timeout: int = CONNECTION_TIMEOUT_MS
    frame_max: int = FRAME_MAX
    channel_max: int = 0
    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    verify: str = "verify_peer"
    server_name_indication: str = ""

    def __repr__(self) -> str:
        """Return the URL without user and password, for logs."""
        scheme = "amqps" if self.secure else "amqp"
        return f"{scheme}://{self.host}:{self.port}/{'' if self.vhost == '/' else self.vhost}"

    __str__ = __repr__

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, None for an unencrypted connection."""
        if not self.secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.cacertfile or None)
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile or None)
        except OSError as error:
            raise InvalidAddressError(f"{self}: the certificates cannot be read: {error}") from None
        if self.verify == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidAddressError(f"not the URL of a broker: {error}") from None
    if parts.scheme not in PORTS:
        raise InvalidAddressError(f"`{parts.scheme}` is no scheme of a broker; use amqp:// or amqps://")
    vhost = unquote(parts.path[1:])
    if "/" in parts.path[1:]:
        raise InvalidAddressError(f"vhost `{vhost}`: a slash in it is written %2F")
    options = _options(dict(parse_qsl(parts.query, keep_blank_values=True)))
    return msgspec.convert(
        {
            "host": parts.hostname or "localhost",
            "port": port or PORTS[parts.scheme],
            "user": "guest" if parts.username is None else unquote(parts.username),
            "password": "guest" if parts.password is None else unquote(parts.password),
            "vhost": vhost or "/",
            "secure": parts.scheme == "amqps",
            **options,
        },
        Address,
    )


def _options(query: Mapping[str, str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for name, value in query.items():
        if name in MAX_OPTION_VALUES:
            if not (value.isascii() and value.isdecimal()) or int(value) > MAX_OPTION_VALUES[name]:
                raise InvalidAddressError(
                    f"{name}={value}: a whole number up to {MAX_OPTION_VALUES[name]:,} is expected"
                )
            found[name] = int(value)
        elif name in TEXT_OPTIONS:
            found[name] = value
        else:
            raise InvalidAddressError(f"`{name}` is no option of a broker's URL")
    if 0 < int(found.get("frame_max", 0)) < MIN_FRAME_BYTES:
        raise InvalidAddressError(f"frame_max={found['frame_max']}: at least {MIN_FRAME_BYTES:,} are needed")
    if found.get("connection_timeout", 1) == 0:
        raise InvalidAddressError("connection_timeout=0: a timeout must be positive; leave it out for 10 s")
    if found.get("verify", "verify_none") not in ("verify_peer", "verify_none"):
        raise InvalidAddressError(f"verify={found['verify']}: verify_peer or verify_none")
    return found
