"""Encodes and decodes the AMQP frames that every message needs by hand, for speed; pamqp handles all others."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from pamqp import commands, encode, header
from pamqp import frame as pamqp_frame

from rune.adapters.rabbitmq.amqp.errors import ProtocolError

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
END_BYTE = b"\xce"
OVERHEAD = 8
"""Bytes around the payload of a frame."""

BEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

DELIVER, ACK, NACK = 0x003C003C, 0x003C0050, 0x003C0078
GET_OK, RETURN = 0x003C0047, 0x003C0032
PERSISTENT = 2

read_frame = struct.Struct(">BHI").unpack_from
read_index = struct.Struct(">I").unpack_from
_read_tag = struct.Struct(">QB").unpack_from
_read_content = struct.Struct(">HHQ").unpack_from
_content = struct.Struct(">BHIHHQ").pack
_piece = struct.Struct(">BHI").pack
_next_piece = struct.Struct(">BBHI").pack
_settle = struct.Struct(">BHIIQBB").pack


HEADERS_FLAG = 0x2000
MESSAGE_ID_FLAG = 0x0080


class Message(msgspec.Struct, gc=False):
    """A delivered message. `tag` identifies it on its channel for acknowledgement."""

    body: bytes
    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    raw: bytes

    @property
    def properties(self) -> commands.Basic.Properties:
        """The properties, decoded on access."""
        found = commands.Basic.Properties()
        found.unmarshal(struct.unpack_from(">H", self.raw)[0], self.raw[2:])
        return found

    @property
    def message_id(self) -> str | None:
        """The id that the publisher gave the message; None if it gave none that can be decoded."""
        if len(self.raw) < 2 or not struct.unpack_from(">H", self.raw)[0] & MESSAGE_ID_FLAG:
            return None
        try:
            return self.properties.message_id
        except Exception:
            return None

    @property
    def has_headers(self) -> bool:
        """Whether there are headers, without decoding the properties."""
        return bool(len(self.raw) > 1 and struct.unpack_from(">H", self.raw)[0] & HEADERS_FLAG)

    @property
    def headers(self) -> dict[str, Any]:
        """The headers, empty if there are none or they cannot be decoded."""
        try:
            return dict(self.properties.headers or {})
        except Exception:
            return {}


class MessageProperties:
    """Properties of one kind of messages, encoded once. Only the correlation id, which identifies returned messages,
    and the timestamp of `timed` ones differ per message."""

    __slots__ = ("_ends", "_second", "after", "before")

    def __init__(
        self,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        priority: int | None = None,
        message_id: str | None = None,
        type: str | None = None,
        app_id: str | None = None,
        timed: bool = False,
    ) -> None:
        flags = 0x8000 | 0x1000 | 0x0400 | (0x0040 if timed else 0)
        before = [encode.short_string(content_type)]
        if headers:
            flags |= HEADERS_FLAG
            before.append(encode.field_table(dict(headers)))
        before.append(bytes([PERSISTENT if persistent else 1]))
        if priority is not None:
            flags |= 0x0800
            before.append(bytes([priority]))
        ends: list[bytes] = []
        for bits in (((MESSAGE_ID_FLAG, message_id),), ((0x0020, type), (0x0008, app_id))):
            present = [(bit, text) for bit, text in bits if text is not None]
            flags |= sum(bit for bit, _ in present)
            ends.append(b"".join(encode.short_string(text) for _, text in present))
        self.before = struct.pack(">H", flags) + b"".join(before)
        self.after = b"".join(ends)
        self._ends = ends
        self._second = 0 if timed else -1

    def properties(self, number: int) -> bytes:
        """Return the properties of one message, with its number as the correlation id."""
        text = b"%d" % number
        if self._second >= 0:
            now = int(time.time())
            if now != self._second:
                self._second = now
                self.after = struct.pack(">Q", now).join(self._ends)
        return self.before + bytes((len(text),)) + text + self.after


JSON = MessageProperties()


def command(value: Any, channel: int) -> bytes:
    """Return a method frame."""
    return pamqp_frame.marshal(value, channel)


def publish_command(channel: int, exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
    """Return the method frame before the content of every message with this exchange and routing key."""
    return command(
        commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory), channel
    )


def content(channel: int, properties: bytes, body: bytes, room: int) -> bytes:
    """Return the header and body frames; a body longer than `room` is split into several frames."""
    size = len(body)
    head = _content(HEADER, channel, 12 + len(properties), 60, 0, size)
    if 0 < size <= room:
        return b"".join((head, properties, _next_piece(END, BODY, channel, size), body, END_BYTE))
    parts = [head, properties, END_BYTE]
    for start in range(0, size, room):
        piece = body[start : start + room]
        parts += (_piece(BODY, channel, len(piece)), piece, END_BYTE)
    return b"".join(parts)


def ack_command(channel: int, tag: int, *, multiple: bool) -> bytes:
    return _settle(METHOD, channel, 13, ACK, tag, multiple, END)


def nack_command(channel: int, tag: int, *, requeue: bool) -> bytes:
    return _settle(METHOD, channel, 13, NACK, tag, 2 if requeue else 0, END)


def read_deliver(data: bytes, start: int, end: int) -> tuple[bytes, Message]:
    """Return the consumer tag and the message without its content, decoded after the method index."""
    stop = start + 1 + data[start]
    consumer = data[start + 1 : stop]
    tag, redelivered = _read_tag(data, stop)
    key = stop + 10 + data[stop + 9]
    last = key + 1 + data[key]
    if last != end:
        raise ProtocolError(502, "a delivery that does not end with its frame")
    exchange, routing_key = data[stop + 10 : key].decode(), data[key + 1 : last].decode()
    return consumer, Message(b"", tag, redelivered != 0, exchange, routing_key, b"")


def read_settled(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return tag and bits of an ack or nack."""
    if end - start != 9:
        raise ProtocolError(502, "an ack of the wrong length")
    tag, bits = _read_tag(data, start)
    return tag, bits


def read_content(data: bytes, start: int, end: int) -> tuple[int, bytes]:
    """Return the size of the body and the undecoded properties."""
    if end - start < 14:
        raise ProtocolError(502, "a content header that is too short")
    kind, _, size = _read_content(data, start)
    if kind != 60:
        raise ProtocolError(501, f"content of class {kind}")
    return size, data[start + 12 : end]


def read_command(data: bytes, start: int, end: int) -> Any:
    """Decode any other method."""
    (index,) = read_index(data, start)
    known: Any = commands.INDEX_MAPPING.get(index)
    if known is None:
        raise ProtocolError(503, f"method {index >> 16}.{index & 0xFFFF} is unknown")
    found = known()
    try:
        found.unmarshal(data[start + 4 : end])
    except Exception as error:
        raise ProtocolError(502, f"{known.name} cannot be read: {error}") from None
    return found


PROTOCOL = header.ProtocolHeader(0, 9, 1).marshal()
