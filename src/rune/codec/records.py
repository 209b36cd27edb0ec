"""Encoding of the records of executions, in journals and in messages (msgpack)."""

from __future__ import annotations

import msgspec

from rune.core.format import FORMAT
from rune.ports.journal import ExecutionRecord, NewerFormatError


class _Header(msgspec.Struct, frozen=True):
    """The fields that a record of any format has."""

    id: str
    format: int = 1


class ListedFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a record that lists show besides the columns of its row."""

    labels: dict[str, str] = {}
    version: int | None = None
    alias: str | None = None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ExecutionRecord)
_HEADER_DECODER = msgspec.msgpack.Decoder(_Header)
_LISTED_DECODER = msgspec.msgpack.Decoder(ListedFields)


def encode_record(record: ExecutionRecord) -> bytes:
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> ExecutionRecord:
    """Decode a record; NewerFormatError if this version does not know its format."""
    try:
        record = _DECODER.decode(data)
    except msgspec.ValidationError:
        _check_format(_HEADER_DECODER.decode(data))
        raise
    _check_format(record)
    return record


def _check_format(record: ExecutionRecord | _Header) -> None:
    if record.format > FORMAT:
        raise NewerFormatError(
            f"{record.id} was written in format {record.format}; this version of Rune reads up to {FORMAT}"
        )


def listed_fields(data: bytes) -> ListedFields:
    """Return what lists show of a record, whatever its format."""
    return _LISTED_DECODER.decode(data)
