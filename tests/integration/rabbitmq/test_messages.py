"""Messages: encoding matches the schemas, foreign messages are decoded, invalid ones rejected."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource

from rune.codec.messages import (
    CompletionMessage,
    ErrorObject,
    InvalidMessageError,
    MessageContext,
    NodeStatusMessage,
    decode_completion,
    decode_execution,
    decode_hint,
    decode_status,
    encode_hint,
    encode_message,
    frames,
    is_first,
    moment,
)
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.core.definition.parser import parse_document
from rune.core.definition.strict_json import MAX_DECODED_BYTES
from rune.core.execution.token import Arrived, Ref, Token, TokenPurpose
from rune.core.limits import LIMITS
from rune.errors import InvalidDocumentError, LimitExceededError
from tests.support.plans import plan, split

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"
IDS = ("trigger", "users", "fetch", "orders", "price")
CONTEXT = MessageContext("wf_1", "sha256:abc", IDS)

EXECUTION: dict[str, Any] = {
    "workflow_id": "wf_email_notification",
    "execution_id": "exec_20251009_123456",
    "current_node": "http_fetch_user",
    "workflow_definition": {"nodes": [{"id": "http_fetch_user"}], "edges": []},
    "accumulated_context": {"$trigger": {"user_id": "user_123", "timestamp": "2025-10-09T12:34:56Z"}},
}
SUCCESS: dict[str, Any] = {
    "workflow_id": "wf_email_notification",
    "execution_id": "exec_20251009_123456",
    "node_id": "http_fetch_user",
    "status": "success",
    "output": {"status": 200, "body": {"name": "John Doe"}, "headers": {"content-type": "application/json"}},
    "error": None,
    "executed_at": "2025-10-09T12:35:01Z",
    "duration_ms": 234,
}
FAILURE: dict[str, Any] = {
    **SUCCESS,
    "status": "failed",
    "output": None,
    "error": {
        "message": "Connection timeout after 30s",
        "code": "HTTP_TIMEOUT",
        "details": {"url": "https://x"},
    },
}
COMPLETION: dict[str, Any] = {
    "workflow_id": "wf_email_notification",
    "execution_id": "exec_20251009_123456",
    "status": "completed",
    "final_context": {"$trigger": {}, "$smtp_send_email": {"sent": True, "message_id": "msg_abc123"}},
    "completed_at": "2025-10-09T12:35:45Z",
    "total_duration_ms": 4523,
    "failed_items": 0,
    "version": 3,
    "alias": "stable",
}


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schemas = {each.name: json.loads(each.read_text()) for each in SCHEMAS.glob("*.json")}
    schema = schemas[f"{name}.json"]
    jsonschema.Draft202012Validator.check_schema(schema)
    others: Registry[Any] = Registry()
    others = others.with_resources((each, Resource.from_contents(found)) for each, found in schemas.items())
    return jsonschema.Draft202012Validator(schema, registry=others)


def matches_schema(name: str, body: bytes) -> bool:
    return bool(validator(name).is_valid(json.loads(body)))


PATHS = st.lists(st.integers(0, 4), max_size=3).map(lambda found: tuple(x for n in found for x in (n, n * 7)))
REFS = st.builds(Ref, st.sampled_from(["start", "result", "item", "entered"]), st.integers(-1, 4), PATHS)
TOKENS = st.builds(
    Token, st.integers(0, 4), PATHS, REFS, st.none() | REFS,
    st.lists(st.builds(Arrived, st.integers(0, 9), REFS), max_size=3).map(tuple),
    st.sampled_from(TokenPurpose), st.integers(1, 9), st.booleans(), st.none() | st.text(max_size=9),
    st.integers(0, 10**6), st.integers(0, 2**53 - 1), st.integers(-1, 9),
)  # fmt: skip


@given(TOKENS, st.integers(0, 10))
@settings(deadline=None)
def test_hint_round_trips_and_matches_schema(token: Token, priority: int) -> None:
    body = encode_hint("exec_1", token, CONTEXT, priority)

    assert decode_hint(body) == ("exec_1", token)
    assert matches_schema("node-execution-message", body)
    message = decode_execution(body)
    assert (message.workflow_id, message.current_node, message.definition_ref) == (
        "wf_1",
        IDS[token.node],
        "sha256:abc",
    )
    assert message.token == token


def test_hint_contains_names_instead_of_indexes() -> None:
    token = Token(4, (1, 5, 3, 2), Ref("result", 2, (1, 5)), attempt=2)

    found = json.loads(
        encode_hint("exec_1", token, msgspec.structs.replace(CONTEXT, traceparent="00-ab-cd-01"), 9)
    )

    assert found == {
        "workflow_id": "wf_1",
        "execution_id": "exec_1",
        "current_node": "price",
        "definition_ref": "sha256:abc",
        "accumulated_context": {},
        "lineage_stack": [
            {"split_node_id": "users", "item_index": 5, "branch_id": "exec_1_users_5"},
            {"split_node_id": "orders", "item_index": 2, "branch_id": "exec_1_users_5_orders_2"},
        ],
        "from_node": "fetch",
        "attempt": 2,
        "priority": 9,
        "traceparent": "00-ab-cd-01",
        "token": {"node": 4, "path": [1, 5, 3, 2], "payload": ["result", 2, [1, 5]], "attempt": 2},
    }


JOINS = plan(
    "start -> a -> j -> s -> body -> g, start -> b -> j, s -> other -> g",
    s=split(),
    g="aggregator",
)


def sent(token: Token) -> dict[str, Any]:
    """The message of a token of the plan with joins."""
    names = MessageContext("wf_1", "sha256:abc", JOINS.ids, plan=JOINS, total=lambda split, outer: 3)
    body = encode_hint("exec_1", token, names)
    assert matches_schema("node-execution-message", body)
    found: dict[str, Any] = json.loads(body)
    return found


def test_from_node_names_predecessor_that_sent_the_token() -> None:
    index = JOINS.index
    passed_on = Token(index["s"], payload=Ref("result", index["a"]))

    assert sent(passed_on)["from_node"] == "j"
    assert sent(Token(index["a"]))["from_node"] == "start"
    assert sent(Token(index["body"], (index["s"], 1)))["from_node"] == "s"
    assert "arrived" not in sent(passed_on)
    assert "from_node" not in sent(Token(index["start"]))


def test_from_node_of_join_names_last_arrival_and_arrived_lists_all() -> None:
    node = JOINS.nodes[JOINS.index["j"]]
    arrived = tuple(Arrived(edge, Ref("result", JOINS.src[edge])) for edge in node.in_edges)

    messages = [sent(Token(node.index, arrived=arrived, last=last)) for last in (0, 1)]

    assert [each["from_node"] for each in messages] == ["a", "b"]
    assert [each["arrived"] for each in messages] == [["a", "b"], ["a", "b"]]


def test_from_node_of_aggregator_names_last_arrival() -> None:
    g = JOINS.index["g"]

    assert sent(Token(g, items=3, last=0))["from_node"] == "body"
    assert sent(Token(g, items=3, last=1))["from_node"] == "other"
    assert sent(Token(g))["from_node"] == "s"  # no items


def test_every_frame_has_total_items() -> None:
    (frame,) = sent(Token(JOINS.index["body"], (JOINS.index["s"], 1)))["lineage_stack"]

    assert frame == {"split_node_id": "s", "item_index": 1, "branch_id": "exec_1_s_1", "total_items": 3}


def test_only_entries_and_their_successors_are_first() -> None:
    """Also where each node passes the start payload on, as in a chain of calls."""
    chain = plan("start -> b -> c -> d")
    first = [name for name in chain.ids if is_first(Token(chain.index[name]), chain)]
    assert first == ["start", "b"]
    assert not is_first(Token(chain.index["b"], attempt=2), chain)
    assert not is_first(Token(chain.index["b"], payload=Ref("result", chain.index["start"])), chain)


def test_inline_message_contains_definition_and_context() -> None:
    names = msgspec.structs.replace(
        CONTEXT, definition=b'{"nodes": [], "edges": []}', context=b'{"$trigger": 1}'
    )

    body = encode_hint("exec_1", Token(2), names)

    found = json.loads(body)
    assert matches_schema("node-execution-message", body)
    assert found["workflow_definition"] == {"nodes": [], "edges": []}
    assert found["accumulated_context"] == {"$trigger": 1}
    assert "definition_ref" not in found


def test_hint_is_small() -> None:
    assert len(encode_hint("exec_20251009_123456", Token(4, (1, 5), Ref("result", 2, (1, 5))), CONTEXT)) < 400


def test_foreign_execution_message_is_decoded() -> None:
    body = json.dumps(EXECUTION).encode()

    assert matches_schema("node-execution-message", body)
    assert decode_hint(body) == ("exec_20251009_123456", None)
    found = decode_execution(body)
    assert found.current_node == "http_fetch_user"
    assert isinstance(found.definition, msgspec.Raw)
    assert json.loads(bytes(found.definition)) == EXECUTION["workflow_definition"]
    assert json.loads(bytes(found.context)) == EXECUTION["accumulated_context"]


@pytest.mark.parametrize(
    "change",
    [
        {"workflow_id": None},
        {"execution_id": ""},
        {"current_node": 7},
        {"accumulated_context": []},
        {"accumulated_context": {"trigger": {}}},
        {"workflow_definition": "text"},
        {"definition_ref": "both"},
        {"lineage_stack": [{"split_node_id": "s"}]},
        {"execution_id": "x" * 129},
        {"workflow_id": "x" * 129},
        {"current_node": "x" * 129},
        {"token": {"path": []}},
        {"execution_id": "a b"},
        {"workflow_id": "a/b"},
        {"priority": 11},
        {"priority": -1},
        {"attempt": 0},
    ],
    ids=str,
)
def test_schema_and_decoder_reject_same_messages(change: dict[str, Any]) -> None:
    body = json.dumps({**EXECUTION, **change}).encode()

    assert not matches_schema("node-execution-message", body)
    with pytest.raises(InvalidMessageError):
        decode_execution(body)


def test_ids_of_messages_are_as_long_as_those_of_documents() -> None:
    longest = "x" * MAX_ID_LENGTH
    ids = {"execution_id": longest, "workflow_id": longest, "current_node": longest}
    body = json.dumps({**EXECUTION, **ids}).encode()

    assert matches_schema("node-execution-message", body)
    assert decode_execution(body).execution_id == longest
    for id, codes in ((longest, []), (f"{longest}x", ["BAD_ID"])):
        document = json.dumps({"id": id, "nodes": [{"id": "a", "type": "input"}]})
        assert [each.code for each in parse_document(document).problems] == codes


def test_token_of_an_execution_with_a_longer_id_is_accepted() -> None:
    """An earlier version started it from a message."""
    body = encode_hint("x" * 255, Token(1), CONTEXT, 5)

    assert decode_hint(body) == ("x" * 255, Token(1))


@pytest.mark.parametrize("missing", EXECUTION)
def test_missing_required_field_is_rejected(missing: str) -> None:
    body = json.dumps({name: value for name, value in EXECUTION.items() if name != missing}).encode()

    assert not matches_schema("node-execution-message", body)
    with pytest.raises(InvalidMessageError):
        decode_execution(body)


@pytest.mark.parametrize("example", [SUCCESS, FAILURE])
def test_foreign_status_round_trips(example: dict[str, Any]) -> None:
    body = json.dumps(example).encode()

    assert matches_schema("node-status-message", body)
    found = decode_status(body)
    written = json.loads(encode_message(found))
    assert matches_schema("node-status-message", json.dumps(written).encode())
    assert {name: written[name] for name in example} == example


def test_batch_schema_accepts_only_statuses() -> None:
    assert matches_schema("node-status-batch", json.dumps([SUCCESS, FAILURE]).encode())
    for wrong in ([], [SUCCESS] * 101, [EXECUTION], [{**SUCCESS, "status": "done"}], SUCCESS):
        assert not matches_schema("node-status-batch", json.dumps(wrong).encode())


def test_encoded_status_matches_schema() -> None:
    status = NodeStatusMessage(
        workflow_id="wf_1", execution_id="e", node_id="price", status="failed",
        error=ErrorObject("no", "NODE_FAILED"), executed_at=moment(1_760_013_301_234), duration_ms=5,
        lineage=frames("e", (1, 5), IDS, lambda split, outer: 7), attempt=3, metadata={"retry_at": 1, "attempt": 4},
    )  # fmt: skip

    body = encode_message(status)

    assert matches_schema("node-status-message", body)
    found = json.loads(body)
    assert found["executed_at"] == "2025-10-09T12:35:01.234Z"
    assert found["lineage_stack"] == [
        {"split_node_id": "users", "item_index": 5, "branch_id": "e_users_5", "total_items": 7}
    ]
    assert decode_status(body) == status


def test_completion_round_trips_and_matches_schema() -> None:
    body = json.dumps(COMPLETION).encode()

    assert matches_schema("completion-message", body)
    assert json.loads(encode_message(decode_completion(body))) == COMPLETION
    failed = CompletionMessage(
        workflow_id="w", execution_id="e", status="cancelled", final_context=msgspec.Raw(b"{}"),
        completed_at=moment(0), total_duration_ms=0, error=ErrorObject("m", "C"),
    )  # fmt: skip
    assert matches_schema("completion-message", encode_message(failed))


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"status": "done"}', b"\xff", b"[" * 200_000])
def test_undecodable_body_is_rejected(body: bytes) -> None:
    for decode in (decode_hint, decode_execution, decode_status, decode_completion):
        with pytest.raises(InvalidMessageError):
            decode(body)


def with_output(output: bytes, **more: Any) -> bytes:
    """Return a message of another program with an output as JSON."""
    body = json.dumps({**EXECUTION, **more, "accumulated_context": {"$trigger": {}, "$a": "OUTPUT"}})
    return body.encode().replace(b'"OUTPUT"', output)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (with_output(b"[" + b"{}," * LIMITS.payload_containers + b"1]"), "lists and objects in a message"),
        (with_output(b"[" * 103 + b"]" * 103), "levels of lists and objects"),
        (with_output(b"1" * (LIMITS.payload_bytes + 4 * 1024 * 1024)), "bytes of a message"),
        (with_output(b"1", workflow_definition={"x": "y" * LIMITS.definition_bytes}), "workflow_definition"),
        (with_output(b"1", arrived=["y" * LIMITS.body_bytes]), "bytes of the other fields"),
    ],
    ids=["containers", "depth", "whole", "definition", "rest"],
)
def test_message_beyond_a_limit_is_rejected_with_its_name(body: bytes, limit: str) -> None:
    with pytest.raises(LimitExceededError, match=limit):
        decode_execution(body)


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ("", "workflow_id"),
        ("", "execution_id"),
        ("", "current_node"),
        ("", "workflow_definition"),
        ("workflow_definition.", "id"),
        ("workflow_definition.", "nodes"),
        ("accumulated_context.", "$trigger"),
    ],
)
def test_key_that_a_message_has_twice_is_reported(place: str, field: str) -> None:
    whole = {name: value for name, value in EXECUTION.items() if name != "definition_ref"}
    whole = {**whole, "workflow_definition": {"id": "w", "nodes": []}, "accumulated_context": {"$trigger": 1}}
    body = json.dumps(whole)
    decode_execution(body.encode())
    twice = body.replace(f'"{field}"', f'"{field}": {{}}, "{field}"', 1)
    if field in ("workflow_id", "execution_id", "current_node"):
        twice = body.replace(f'"{field}"', f'"{field}": "other", "{field}"', 1)

    with pytest.raises(InvalidDocumentError) as raised:
        decode_execution(twice.encode())
    assert [(each.path, each.code) for each in raised.value.problems] == [(place + field, "DUPLICATE_KEY")]


def test_empty_lists_of_a_message_may_be_null() -> None:
    """A nil slice of Go is written so."""
    body = json.dumps({**EXECUTION, "lineage_stack": None, "arrived": None}).encode()

    assert matches_schema("node-execution-message", body)
    assert not decode_execution(body).lineage


def test_token_of_a_long_path_is_rejected() -> None:
    with pytest.raises(LimitExceededError, match="levels of the path of a token"):
        decode_hint(encode_hint("exec_1", Token(1, (1, 2) * 5), CONTEXT))


def test_large_message_of_rune_is_read_at_its_ends() -> None:
    context = b'{"$a":"' + b"x" * MAX_DECODED_BYTES + b'"}'
    token = Token(4, (1, 5, 3, 2), Ref("result", 2, (1, 5)), attempt=2)
    names = msgspec.structs.replace(CONTEXT, definition=b"{}", context=context)

    assert decode_hint(encode_hint("exec_1", token, names)) == ("exec_1", token)


def test_token_inside_of_an_output_of_a_large_message_is_none() -> None:
    inner = b'{"x":"' + b"x" * MAX_DECODED_BYTES + b'","token":{"node":1}}'

    assert decode_hint(with_output(inner))[1] is None


def test_large_message_of_another_program_is_told_apart_without_decoding_it() -> None:
    body = with_output(b"[" + b"{}," * 20_000_000 + b"1]")
    began = time.thread_time()

    assert decode_hint(body) == (EXECUTION["execution_id"], None)
    assert time.thread_time() - began < 0.02
