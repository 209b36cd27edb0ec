"""Encoding of facts (msgpack) and values (JSON). Values stay encoded until an expression reads them."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.token import Path, Ref

KINDS: dict[type, int] = {
    ExecutionStarted: 0,
    NodeResult: 1,
    AttemptFailed: 2,
    NodeSuspended: 3,
    RaceWinner: 4,
    PauseChanged: 5,
    ExecutionEnded: 6,
    SignalReceived: 7,
    EffectStarted: 8,
}
"""The stored kind of each fact. The numbers must not change."""

_RESULT = KINDS[NodeResult]


class Inline(msgspec.Struct, frozen=True, tag="v"):
    """A small value, as JSON bytes."""

    data: bytes


class Large(msgspec.Struct, frozen=True, tag="b"):
    """A value that is stored as a blob."""

    key: str
    size: int


class Paged(msgspec.Struct, frozen=True, tag="p"):
    """The items of a fan-out, stored as blobs of whole items: `starts[i]` is the index of the first item in page i."""

    key: str
    count: int
    starts: tuple[int, ...]


class Same(msgspec.Struct, frozen=True, tag="s"):
    """A reference to a stored value: a value that a node passes through is not stored twice."""

    ref: Ref


StoredValue = Inline | Large | Paged | Same

_FACT_ENCODER = msgspec.msgpack.Encoder()
_FACT_DECODER = msgspec.msgpack.Decoder(Fact)
_JSON_ENCODER = msgspec.json.Encoder()
_JSON_DECODER = msgspec.json.Decoder()


def encode_fact(fact: Fact) -> bytes:
    return _FACT_ENCODER.encode(fact)


def decode_fact(data: bytes) -> Fact:
    """Decode a fact and convert its value, which the fact declares as Any, to a StoredValue."""
    fact: Fact = _FACT_DECODER.decode(data)
    if isinstance(fact, NodeResult | SignalReceived) and fact.value is not None:
        return msgspec.structs.replace(fact, value=msgspec.convert(fact.value, StoredValue))
    return fact


def encode_value(value: Any) -> bytes:
    return _JSON_ENCODER.encode(value)


def decode_value(data: bytes) -> Any:
    return _JSON_DECODER.decode(data)


def fact_columns(fact: Fact) -> tuple[int, int, bytes, int]:
    """Return kind, node, path and number: the write-once key of a fact within its execution."""
    if type(fact) is NodeResult:
        return _RESULT, fact.node, encode_path(fact.path), 0
    kind = KINDS[type(fact)]
    if type(fact) is NodeSuspended or type(fact) is AttemptFailed or type(fact) is EffectStarted:
        return kind, fact.node, encode_path(fact.path), fact.attempt
    if type(fact) is RaceWinner:
        return kind, fact.node, encode_path(fact.path), 0
    if type(fact) is PauseChanged:
        return kind, -1, b"", fact.number
    if type(fact) is SignalReceived:
        return kind, -1, fact.id.encode(), 0
    return kind, -1, b"", 0


def encode_path(path: Path) -> bytes:
    """Encode a path so that the bytes sort like the path: item 10 after item 2."""
    if len(path) < 2:
        return path[0].to_bytes(4, "big") if path else b""
    return b"".join([each.to_bytes(4, "big") for each in path])


def decode_path(data: bytes) -> Path:
    return tuple(int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4))
