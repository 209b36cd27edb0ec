"""Encoding of the records of executions, in journals and in messages (msgpack)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.execution.stored_value import Inline, Large, StoredValue
from rune.core.format import FORMAT
from rune.ports.journal import ExecutionRecord, NewerFormatError


class _StoredRecord(ExecutionRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A record as it is stored: an input that is not a blob is just its bytes, as in format 1."""

    input: bytes | StoredValue  # type: ignore[assignment]


class _Header(msgspec.Struct, frozen=True):
    """The fields that a record of any format has."""

    id: str
    format: int = 1


class ListedFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a record that lists show besides the columns of its row."""

    labels: dict[str, str] = {}
    version: int | None = None
    alias: str | None = None
    fake_time: bool = False


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_StoredRecord)
_FIELDS = tuple(each for each in ExecutionRecord.__struct_fields__ if each != "input")
_HEADER_DECODER = msgspec.msgpack.Decoder(_Header)
_LISTED_DECODER = msgspec.msgpack.Decoder(ListedFields)

HEAD_BYTES = 2_048
"""Of a record, read for lists. What they show is there, unless the labels are long or an earlier version wrote the
input in front of them."""

_INPUT_KEY = b"\xa5input"
_NO_BYTES = b"\xc4\x00"
_BIN_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def encode_record(record: ExecutionRecord) -> bytes:
    return _ENCODER.encode(
        replace(record, input=record.input.data) if type(record.input) is Inline else record
    )


def decode_record(data: bytes) -> ExecutionRecord:
    """Decode a record; NewerFormatError if this version does not know its format."""
    try:
        stored = _DECODER.decode(data)
    except msgspec.ValidationError:
        _check_format(_HEADER_DECODER.decode(data))
        raise
    _check_format(stored)
    given: Any = stored.input
    input: StoredValue = Inline(given) if type(given) is bytes else given
    return ExecutionRecord(input=input, **{name: getattr(stored, name) for name in _FIELDS})


def _check_format(record: ExecutionRecord | _Header) -> None:
    if record.format > FORMAT:
        raise NewerFormatError(
            f"{record.id} was written in format {record.format}; this version of Rune reads up to {FORMAT}"
        )


def request_digest(hash: str, input: bytes) -> bytes:
    """Return the digest by which a repeated idempotency key is compared."""
    return hashlib.sha256(hash.encode() + b"\0" + input).digest()


def record_digest(record: ExecutionRecord) -> bytes:
    """Return the digest of a start whose request is not known. The key of a blob ends with the digest of its bytes."""
    stored = record.input
    if type(stored) is Inline:
        return request_digest(record.hash, stored.data)
    assert type(stored) is Large
    return request_digest(record.hash, stored.key.rpartition("/")[2].encode())


def listed_fields(data: bytes) -> ListedFields:
    """Return what lists show of a record, whatever its format."""
    return _LISTED_DECODER.decode(data)


def without_input(head: bytes) -> tuple[bytes, int]:
    """Return the beginning of a record without its input, given its first bytes, and where the rest begins: the two
    together are what `listed_fields` decodes. A head that ends before the input is all needed, with everything behind.
    """
    try:
        at, fields = _map(head)
        for _ in range(fields):
            value = _end_of(head, at)
            if head[at:value] == _INPUT_KEY and head[value] in _BIN_LENGTHS:
                data = value + 1 + _BIN_LENGTHS[head[value]]
                if data > len(head):
                    break
                return head[:value] + _NO_BYTES, data + int.from_bytes(head[value + 1 : data], "big")
            at = _end_of(head, value)
    except IndexError:
        pass
    return head, len(head)


def _map(data: bytes) -> tuple[int, int]:
    """Return where the first key of a map begins, and the number of its keys."""
    return (3, int.from_bytes(data[1:3], "big")) if data[0] == 0xDE else (1, data[0] & 0x0F)


_SIZES = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict.fromkeys((0xCC, 0xD0), 1),
    **dict.fromkeys((0xCD, 0xD1), 2),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 4),
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 8),
}
"""Bytes behind the first one of a value: nothing, false and true, and numbers."""

_LENGTHS = {**_BIN_LENGTHS, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length of a value: of bytes and of text."""

_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the count of a value, and the values for each: of lists and of maps."""


def _end_of(data: bytes, at: int) -> int:
    """Return where the value at a place ends; IndexError if the bytes end before."""
    values = 1
    while values:
        values -= 1
        kind = data[at]
        at += 1
        if kind in _SIZES:
            at += _SIZES[kind]
        elif kind in _LENGTHS:
            width = _LENGTHS[kind]
            at += width + int.from_bytes(data[at : at + width], "big")
        elif kind in _COUNTS:
            width, each = _COUNTS[kind]
            values += each * int.from_bytes(data[at : at + width], "big")
            at += width
        elif 0xA0 <= kind <= 0xBF:
            at += kind & 0x1F
        elif 0x80 <= kind <= 0x9F:
            values += (kind & 0x0F) * (2 if kind < 0x90 else 1)
    if at > len(data):
        raise IndexError("the value ends behind the bytes")
    return at
