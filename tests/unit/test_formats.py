"""Readers of stored and sent data read what the previous version wrote and what a later one may write.

`PREVIOUS` are bytes as the version before wrote them. A later version adds fields, at the end of arrays; it adds kinds
of facts and ways to store a value, which are reported as such.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from rune.adapters.redis.encoding import decode_token, encode_token
from rune.adapters.redis.processes import decode_ended
from rune.codec.facts import decode_fact, encode_fact
from rune.codec.messages import decode_execution, decode_hint, decode_status
from rune.codec.records import HEAD_BYTES, decode_record, encode_record, listed_fields, without_input
from rune.core.definition.model import Definition, HookHandler, Settings
from rune.core.execution.fact import ExecutionEnded, NodeResult, SignalReceived
from rune.core.execution.stored_value import Inline, Large
from rune.core.execution.token import Token
from rune.core.format import FORMAT, required_format
from rune.ports.journal import ExecutionRecord, NewerFormatError, Parent

PREVIOUS = {
    # A token without the place of the last arrival, and one with it.
    "token of 11 fields": bytes.fromhex("9b07a0a173c2a0a372756e01c2c20000"),
    "token of 12 fields": bytes.fromhex("9c07a0a173c2a0a372756e01c2c2000000"),
    "record": bytes.fromhex(
        "de0005a26964a27831a8776f726b666c6f77a177a468617368a168a2617405a5696e707574c4077b2261223a317d"
    ),
    "result": bytes.fromhex(
        "de0006a474797065a6726573756c74a46e6f646501a470617468920305a2617409a6737461747573a26f6ba576616c7565"
        "82a474797065a176a464617461c40131"
    ),
}
UNPACK, PACK = msgspec.msgpack.decode, msgspec.msgpack.encode


@pytest.mark.parametrize("name", ["token of 11 fields", "token of 12 fields"])
def test_token_of_earlier_version_is_read(name: str) -> None:
    assert decode_token(PREVIOUS[name]) == Token(7)


def test_token_with_later_fields_is_read() -> None:
    later = PACK([*UNPACK(encode_token(Token(7, attempt=3))), "new", {"more": 1}])
    assert decode_token(later) == Token(7, attempt=3)


def test_end_with_later_fields_is_read() -> None:
    sent = '["x1",{"type":"end","at":5,"status":"completed","new":1},"more"]'
    assert decode_ended(sent) == ("x1", ExecutionEnded(5, "completed"))


def test_hint_with_later_fields_is_read() -> None:
    body = b'{"execution_id":"x1","new":[1],"token":{"node":7,"payload":["start",-1,[],"new"],"new":true}}'
    assert decode_hint(body) == ("x1", Token(7))


def test_frame_without_known_total_is_read() -> None:
    frame = b'{"split_node_id":"s","item_index":3,"total_items":null,"new":1}'
    message = (
        b'{"workflow_id":"w","execution_id":"x1","current_node":"n","definition_ref":"h",'
        b'"accumulated_context":{},"lineage_stack":[' + frame + b"]}"
    )
    (decoded,) = decode_execution(message).lineage or ()
    assert decoded.total_items is None
    status = (
        b'{"workflow_id":"w","execution_id":"x1","node_id":"n","status":"success","executed_at":"","duration_ms":1,'
        b'"lineage_stack":[' + frame + b"]}"
    )
    assert decode_status(status).lineage[0].item_index == 3


def test_record_of_previous_version_is_read() -> None:
    record = decode_record(PREVIOUS["record"])
    assert (record.id, record.workflow, record.hash, record.at, record.format) == ("x1", "w", "h", 5, 1)


def test_record_with_later_fields_is_read() -> None:
    record = ExecutionRecord(id="x1", workflow="w", hash="h", at=5, input=Inline(b"1"), labels={"a": "b"})
    assert decode_record(PACK({**UNPACK(encode_record(record)), "new": [1]})) == record


@pytest.mark.parametrize("changes", [{}, {"input": {"type": "sealed"}}, {"labels": 5}])
def test_record_of_newer_format_is_reported(changes: dict[str, object]) -> None:
    record = ExecutionRecord(id="x1", workflow="w", hash="h", at=5, input=Inline(b"1"), format=FORMAT + 1)
    with pytest.raises(NewerFormatError, match=f"x1 was written in format {FORMAT + 1}"):
        decode_record(PACK({**UNPACK(encode_record(record)), **changes}))


@pytest.mark.parametrize(
    ("handler", "scoped", "expected"),
    [
        (None, False, 1),
        (None, True, 2),
        (HookHandler(workflow="h"), False, 1),
        (HookHandler(workflow="h", statuses=("failed", "cancelled")), False, 2),
        (HookHandler(workflow="h", statuses=("failed_items",)), False, 2),
    ],
)
def test_format_is_lowest_that_suits_definition(
    handler: HookHandler | None, scoped: bool, expected: int
) -> None:
    definition = Definition(id="w", nodes=(), edges=(), settings=Settings(on_failure=handler))
    assert required_format(definition, scoped=scoped) == expected
    assert required_format(definition, scoped=scoped, large_start=True) == 2


def test_record_with_a_small_input_is_stored_as_by_the_previous_version() -> None:
    record = ExecutionRecord(id="x1", workflow="w", hash="h", at=5, input=Inline(b"1"))
    assert UNPACK(encode_record(record))["input"] == b"1"
    assert decode_record(encode_record(record)) == record


def test_record_with_an_input_in_a_blob_is_read() -> None:
    record = ExecutionRecord(id="x1", workflow="w", hash="h", at=5, input=Large("x1/start/ab", 9), format=2)
    assert decode_record(encode_record(record)) == record


def test_damaged_record_of_known_format_is_no_newer_one() -> None:
    record = ExecutionRecord(id="x1", workflow="w", hash="h", at=5, input=Inline(b"1"))
    with pytest.raises(msgspec.ValidationError):
        decode_record(PACK({**UNPACK(encode_record(record)), "at": "soon"}))


def test_list_shows_record_of_newer_format() -> None:
    record = ExecutionRecord(
        id="x1", workflow="w", hash="h", at=5, input=Inline(b"1"), labels={"a": "b"}, format=FORMAT + 1
    )
    later = PACK({**UNPACK(encode_record(record)), "input": {"type": "sealed"}})
    assert listed_fields(later).labels == {"a": "b"}


def test_fact_of_previous_version_is_read() -> None:
    assert decode_fact(PREVIOUS["result"]) == NodeResult(1, (3, 5), 9, "ok", value=Inline(b"1"))


def test_fact_with_later_fields_is_read() -> None:
    fact = NodeResult(1, (3, 5), 9, "ok", value=Inline(b"1"))
    fields = UNPACK(encode_fact(fact))
    fields["value"]["new"] = 1
    assert decode_fact(PACK({**fields, "new": [1]})) == fact


@pytest.mark.parametrize("kind", ["version", "admitted", "range"])
def test_unknown_kind_of_fact_is_newer_format(kind: str) -> None:
    with pytest.raises(NewerFormatError, match=f"a fact of kind `{kind}`"):
        decode_fact(PACK({"type": kind, "at": 5}))


@pytest.mark.parametrize("fact", [NodeResult(1, (), 9, "ok"), SignalReceived(9, "s1", "go")])
def test_unknown_way_to_store_value_is_newer_format(fact: NodeResult | SignalReceived) -> None:
    fields = {**UNPACK(encode_fact(fact)), "value": {"type": "sealed", "data": b"1"}}
    with pytest.raises(NewerFormatError, match="a value stored as `sealed`"):
        decode_fact(PACK(fields))


@pytest.mark.parametrize("wrong", [{"at": "soon"}, {"value": {"type": "v", "data": 5}}, {"value": 5}])
def test_damaged_fact_of_known_kind_is_no_newer_one(wrong: dict[str, object]) -> None:
    fields = UNPACK(encode_fact(NodeResult(1, (), 9, "ok", value=Inline(b"1"))))
    with pytest.raises(msgspec.ValidationError):
        decode_fact(PACK({**fields, **wrong}))


@pytest.mark.parametrize("input_first", [False, True], ids=["now", "before"])
def test_lists_find_what_they_show_in_any_beginning_of_a_record(input_first: bool) -> None:
    first = ("id", "input") if input_first else ()
    samples = [PREVIOUS["record"], *(encode_record(each) for each in _records())]
    for data in samples:
        fields = UNPACK(data)
        record = PACK({**{name: fields[name] for name in first}, **fields})
        for length in range(len(record) + 1):
            known, start = without_input(record[:length])
            assert listed_fields(known + record[start:]) == listed_fields(data), length


def test_beginning_of_a_record_has_what_lists_show() -> None:
    data = encode_record(replace(_records()[1], input=Inline(b"1" * 30_000)))

    known, start = without_input(data[:HEAD_BYTES])

    assert (start, len(known) < HEAD_BYTES) == (len(data), True)


def _records() -> list[ExecutionRecord]:
    """Records with values of every kind that they can have."""
    full = ExecutionRecord(
        id="x" * 40,
        workflow="w" * 300,
        hash="h" * 64,
        at=1_763_000_000_000,
        input=Inline(b"1" * 300),
        key="k",
        labels={f"label {each}": "v" * each * 15 for each in range(20)},
        priority=9,
        fake_time=True,
        parent=Parent("p", -1, (1, 70_000, 2**40), 200),
        depth=3,
        needs=tuple(f"n{each}" for each in range(17)),
        principal="key:a",
        scopes=("a*",),
        trace="00-1",
        version=2**33,
        alias="stable",
    )
    return [full, replace(full, input=Large("x/input", 7), labels={}), replace(full, parent=None, scopes=())]
