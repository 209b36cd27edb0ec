"""Encoding of facts (msgpack) and values (JSON). Values stay encoded until an expression reads them.

The results of items are packed in memory: the aggregator of a fan-out reads the results of all items. As objects they
take about 800 bytes each; packed they take about 20 bytes and the value. What the items of a node have in common is
stored once.
"""

from __future__ import annotations

from array import array
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    ExecutionLate,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.stored_value import Inline, Same, StoredValue
from rune.core.execution.token import ROOT, Path, Ref
from rune.core.json_decoder import JsonDecoder
from rune.ports.journal import NewerFormatError

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
    ExecutionLate: 12,
}
"""The stored kind of each fact. The numbers must not change."""

_RESULT = KINDS[NodeResult]


class _Tags(msgspec.Struct, frozen=True):
    """What names the kind of a fact and the way its value is stored, in facts of any version."""

    type: str
    value: Any = None


_FACT_TAGS = frozenset(each.__struct_config__.tag for each in get_args(Fact))
_VALUE_TAGS = frozenset(each.__struct_config__.tag for each in get_args(StoredValue))
_TAGS_DECODER = msgspec.msgpack.Decoder(_Tags)
_FACT_ENCODER = msgspec.msgpack.Encoder()
_FACT_DECODER = msgspec.msgpack.Decoder(Fact)
_JSON_ENCODER = msgspec.json.Encoder()
_JSON_DECODER = JsonDecoder()


def encode_fact(fact: Fact) -> bytes:
    return _FACT_ENCODER.encode(fact)


def decode_fact(data: bytes) -> Fact:
    """Decode a fact and convert its value, which the fact declares as Any, to a StoredValue. NewerFormatError if its
    kind, or the way its value is stored, is unknown: only a newer version writes such facts."""
    try:
        fact: Fact = _FACT_DECODER.decode(data)
        if isinstance(fact, NodeResult | SignalReceived) and fact.value is not None:
            return msgspec.structs.replace(fact, value=msgspec.convert(fact.value, StoredValue))
    except msgspec.ValidationError:
        _check_known(_TAGS_DECODER.decode(data))
        raise
    return fact


def _check_known(fact: _Tags) -> None:
    value = fact.value.get("type") if isinstance(fact.value, dict) else None
    if fact.type not in _FACT_TAGS:
        raise NewerFormatError(f"a fact of kind `{fact.type[:80]}`, which this version of Rune does not know")
    if isinstance(value, str) and value not in _VALUE_TAGS:
        raise NewerFormatError(f"a value stored as `{value[:80]}`, which this version of Rune does not know")


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


PACK_ITEMS = 256
"""Results in one pack: an item's place in its pack is one byte."""

MAX_PACKED_BYTES = 1024
"""Larger values are not packed: the object around them is small in comparison."""

MAX_TEMPLATES = 8
MAX_TOOK_MS = 2**31 - 1
UNKNOWN = -1  # the duration of a result without the time at which its node began
RESULT_BYTES = 20  # of a packed result, besides its value


class PackedResults:
    """The results of one node for up to PACK_ITEMS items of one fan-out, in the order in which they were added.

    A result is rebuilt from a template, which has the fields that many results share, and from the fields that differ:
    its times and its value.
    """

    __slots__ = ("_at", "_ends", "_kinds", "_places", "_templates", "_took", "_values")

    def __init__(self) -> None:
        self._templates: list[NodeResult] = []
        self._places = bytearray()
        self._kinds = bytearray()
        self._at = array("q")
        self._took = array("i")
        self._ends = array("I")
        self._values = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, result: NodeResult) -> bool:
        """Add the result of an item. Return False if it cannot be packed: it failed, or its value is large, paged or
        taken from another scope."""
        value, path = result.value, result.path
        if type(value) is Inline:
            data, form = value.data, None
            if len(data) > MAX_PACKED_BYTES:
                return False
        elif type(value) is Same and value.ref.path == path:
            data, form = b"", Same(Ref(value.ref.kind, value.ref.node))
        else:
            return False
        took = result.at - result.began if result.began else UNKNOWN
        if result.began and not 0 <= took <= MAX_TOOK_MS:
            return False
        place = path[-1] % PACK_ITEMS
        if place in self._places:
            return True  # a result is recorded once and never changes
        template = replace(result, path=ROOT, at=0, began=0, value=form)
        try:
            kind = self._templates.index(template)
        except ValueError:
            kind = len(self._templates)
            if result.failure is not None or kind >= MAX_TEMPLATES:
                return False
            self._templates.append(template)
        self._places.append(place)
        self._kinds.append(kind)
        self._at.append(result.at)
        self._took.append(took)
        self._values += data
        self._ends.append(len(self._values))
        return True

    def get(self, path: Path) -> NodeResult | None:
        """Return the result of the item with this path; None if it was not added."""
        at = self._places.find(path[-1] % PACK_ITEMS)
        if at < 0:
            return None
        template = self._templates[self._kinds[at]]
        form = template.value
        value: Inline | Same
        if form is None:
            start = self._ends[at - 1] if at else 0
            value = Inline(bytes(self._values[start : self._ends[at]]))
        else:
            value = Same(Ref(form.ref.kind, form.ref.node, path))
        ended, took = self._at[at], self._took[at]
        began = 0 if took == UNKNOWN else ended - took
        return replace(template, path=path, at=ended, began=began, value=value)
