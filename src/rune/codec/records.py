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
