"""Frames: the few that travel with every message, written and read by hand. All others go through pamqp."""

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
OVERHEAD = 8  # bytes around the payload of a frame
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


class Message(msgspec.Struct, gc=False):
    """What was delivered. `tag` settles it on the channel that it came by."""

    body: bytes
    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    raw: bytes

    @property
    def properties(self) -> commands.Basic.Properties:
        """What its header says, decoded when asked for."""
        found = commands.Basic.Properties()
        found.unmarshal(struct.unpack_from(">H", self.raw)[0], self.raw[2:])
        return found

    @property
    def headers(self) -> dict[str, Any]:
        """Its table of headers; an empty one if there is none or it cannot be read."""
        try:
            return dict(self.properties.headers or {})
        except Exception:
            return {}


class MessageProperties:
    """The properties of messages of one kind, encoded once. What changes is a number that a return brings back, and of
    `timed` ones the second in which they are sent."""

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
            flags |= 0x2000
            before.append(encode.field_table(dict(headers)))
        before.append(bytes([PERSISTENT if persistent else 1]))
        if priority is not None:
            flags |= 0x0800
            before.append(bytes([priority]))
        ends: list[bytes] = []
        for bits in (((0x0080, message_id),), ((0x0020, type), (0x0008, app_id))):
            given = [(bit, text) for bit, text in bits if text is not None]
            flags |= sum(bit for bit, _ in given)
            ends.append(b"".join(encode.short_string(text) for _, text in given))
        self.before = struct.pack(">H", flags) + b"".join(before)
        self.after = b"".join(ends)
        self._ends = ends
        self._second = 0 if timed else -1

    def properties(self, number: int) -> bytes:
        """The properties of one message, with its number as the correlation id."""
        text = b"%d" % number
        if self._second >= 0:
            now = int(time.time())
            if now != self._second:
                self._second = now
                self.after = struct.pack(">Q", now).join(self._ends)
        return self.before + bytes((len(text),)) + text + self.after


JSON = MessageProperties()


def command(value: Any, channel: int) -> bytes:
    """A method frame, by pamqp."""
    return pamqp_frame.marshal(value, channel)


def publish_command(channel: int, exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
    """The frame that goes before the content of every message that goes the same way."""
    return command(
        commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory), channel
    )


def content(channel: int, properties: bytes, body: bytes, room: int) -> bytes:
    """Header and body; a body longer than the room in a frame goes in pieces."""
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
    """The consumer's tag and a message without its content, from behind the method's number."""
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
    """Tag and bits of an ack or nack."""
    if end - start != 9:
        raise ProtocolError(502, "an ack of the wrong length")
    tag, bits = _read_tag(data, start)
    return tag, bits


def read_content(data: bytes, start: int, end: int) -> tuple[int, bytes]:
    """The size of the body, and the properties as they are."""
    if end - start < 14:
        raise ProtocolError(502, "a content header that is too short")
    kind, _, size = _read_content(data, start)
    if kind != 60:
        raise ProtocolError(501, f"content of class {kind}")
    return size, data[start + 12 : end]


def read_command(data: bytes, start: int, end: int) -> Any:
    """Any other method, by pamqp."""
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
