"""Bodies of the `http` node: forms, files and bytes in requests, blobs in responses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import BodyPartReader, web
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rune.core.definition.strict_json import MAX_INT, MIN_INT
from rune.core.execution.outcome import Outcome
from rune.core.limits import LIMITS
from rune.nodes.base import check_json
from rune.nodes.blobs import Blobs, Reference, file_name, is_reference
from rune.nodes.io.http_client.response import MAX_INLINE_BYTES, response_file_name
from rune.nodes.schema import parameter_schema
from rune.testing.mocks import MemoryBlob
from tests.support.io_nodes import (
    HttpHandler,
    http_server,
    local_resources,
    put_blob,
    respond_with,
    run_node,
    send_request,
)
from tests.unit.nodes.runner import error, output

BYTES = bytes(range(256))


def send_with_store(store: MemoryBlob, handler: HttpHandler, **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        resources = local_resources()
        async with http_server(handler) as port:
            url = f"http://127.0.0.1:{port}{parameters.pop('path', '/')}"
            outcome = await run_node("http", {"url": url, **parameters}, resources, store=store)
            await resources.close()
        return outcome

    return asyncio.run(scenario())


class FormServer:
    """A server that records the parts of a multipart form."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str | None, str | None, bytes]] = []
        self.raw = b""
        self.content_type = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.content_type = request.headers.get("Content-Type", "")
        if self.content_type.startswith("multipart/"):
            async for part in await request.multipart():
                assert isinstance(part, BodyPartReader)
                data = bytes(await part.read())
                kind = part.headers.get("Content-Type")
                self.parts.append((part.name or "", part.filename, kind, data))
        else:
            self.raw = await request.read()
        return web.Response(text="x")


def test_multipart_sends_fields_and_files() -> None:
    store, form = MemoryBlob(), FormServer()
    picture = put_blob(store, BYTES, "a b.png", "image/png")
    body = {
        "title": "Grüße",
        "count": 3,
        "none": None,
        "tags": ["a", "b"],
        "about": {"n": 1},
        "picture": picture,
        "note": {"filename": "n.txt", "content": "hello"},
        "data": {"filename": "d.bin", "content": "AAEC", "encoding": "base64"},
        "renamed": {"filename": "other.bin", "content": picture, "content_type": "application/x-own"},
    }

    output(send_with_store(store, form.handle, method="POST", body=body, body_type="multipart"))

    assert form.parts == [
        ("title", None, None, "Grüße".encode()),
        ("count", None, None, b"3"),
        ("tags", None, None, b"a"),
        ("tags", None, None, b"b"),
        ("about", None, "application/json", b'{"n":1}'),
        ("picture", "a b.png", "image/png", BYTES),
        ("note", "n.txt", "text/plain", b"hello"),
        ("data", "d.bin", "application/octet-stream", b"\x00\x01\x02"),
        ("renamed", "other.bin", "application/x-own", BYTES),
    ]


def test_multipart_content_type_selects_multipart() -> None:
    form = FormServer()

    output(
        send_request(
            form.handle, method="POST", body={"a": 1}, headers={"Content-Type": "multipart/form-data"}
        )
    )

    assert form.parts == [("a", None, None, b"1")]


@pytest.mark.parametrize("name", ['a"; filename="x', "a\r\nEvil: 1", "a\r\n\r\nbody", "ü", "\x00"])
def test_part_names_are_escaped(name: str) -> None:
    form = FormServer()
    body = {name: "v", "file": {"filename": name, "content": "x"}, "last": "w"}

    output(send_request(form.handle, method="POST", body=body, body_type="multipart"))

    assert [data for *_, data in form.parts] == [b"v", b"x", b"w"]
    assert form.parts[0][1] is None


@pytest.mark.parametrize(
    ("body", "body_type", "raw", "content_type"),
    [
        ("text", "json", b'"text"', "application/json"),
        ({"a": [1, 2], "b": "x y"}, "form", b"a=1&a=2&b=x+y", "application/x-www-form-urlencoded"),
        ({"a": 1}, "text", b'{"a":1}', "text/plain; charset=utf-8"),
        (base64.b64encode(BYTES).decode(), "binary", BYTES, "application/octet-stream"),
        ("AAE\nC", "binary", b"\x00\x01\x02", "application/octet-stream"),
    ],
)
def test_body_type_selects_encoding(body: Any, body_type: str, raw: bytes, content_type: str) -> None:
    form = FormServer()

    output(send_request(form.handle, method="POST", body=body, body_type=body_type))

    assert (form.raw, form.content_type) == (raw, content_type)


@pytest.mark.parametrize("body_type", ["auto", "binary"])
def test_blob_reference_is_sent_as_bytes(body_type: str) -> None:
    store, form = MemoryBlob(), FormServer()
    reference = put_blob(store, BYTES, "x.png", "image/png")

    output(send_with_store(store, form.handle, method="PUT", body=reference, body_type=body_type))

    assert (form.raw, form.content_type) == (BYTES, "image/png")


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"body": "no base64!", "body_type": "binary"}, "BAD_PARAMETER"),
        ({"body": {"a": 1}, "body_type": "binary"}, "BAD_PARAMETER"),
        ({"body": [1], "body_type": "form"}, "BAD_PARAMETER"),
        ({"body": {"a": {"b": 1}}, "body_type": "form"}, "BAD_PARAMETER"),
        ({"body": "x", "body_type": "multipart"}, "BAD_PARAMETER"),
        (
            {"body": {"f": {"filename": "x", "content": "y", "odd": 1}}, "body_type": "multipart"},
            "BAD_PARAMETER",
        ),
        ({"body": {"blob": f"x1/files/{'0' * 64}", "size": 1}}, "BLOB_UNKNOWN"),
        ({"body": {"blob": f"x2/files/{'0' * 64}", "size": 1}}, "BLOB_UNKNOWN"),
        ({"body": {"blob": f"x1/files/{'0' * 64}", "size": 10**9}}, "BAD_PARAMETER"),
    ],
)
def test_invalid_body_fails_before_request(parameters: dict[str, Any], code: str) -> None:
    form = FormServer()

    assert error(send_request(form.handle, method="POST", **parameters)).code == code
    assert (form.raw, form.parts) == (b"", [])


def test_blob_of_other_execution_is_unknown() -> None:
    store, form = MemoryBlob(), FormServer()
    foreign = put_blob(store, b"secret", execution="x2")

    found = error(send_with_store(store, form.handle, method="POST", body=foreign))

    assert (found.code, form.raw) == ("BLOB_UNKNOWN", b"")


def test_binary_response_is_stored_as_blob() -> None:
    store = MemoryBlob()

    body = output(
        send_with_store(store, respond_with(BYTES, Content_Type="image/png"), path="/pics/a%20b.png?x=1")
    )["body"]

    digest = hashlib.sha256(BYTES).hexdigest()
    assert body == {"blob": f"x1/files/{digest}", "size": 256, "content_type": "image/png", "name": "a b.png"}
    assert store.kept == {body["blob"]: BYTES}
    assert is_reference(body)
    Draft202012Validator(parameter_schema(Reference)).validate(body)


def test_same_bytes_are_stored_once() -> None:
    store, handler = MemoryBlob(), respond_with(BYTES, Content_Type="image/png")

    first, second = (output(send_with_store(store, handler))["body"]["blob"] for _ in range(2))

    assert first == second


@pytest.mark.parametrize(
    ("body", "content_type", "response", "read"),
    [
        (b"abc", "application/octet-stream", "auto", "blob"),
        (b"abc", "application/octet-stream", "text", "abc"),
        (b"[1]", "text/html", "json", [1]),
        (b"[1]", "application/json", "text", "[1]"),
        (b"[1]", "application/json", "blob", "blob"),
        (b"\xff\x00", "application/unheard-of", "auto", "blob"),
        ("ü".encode(), "application/unheard-of", "auto", "ü"),
        (b"", "application/pdf", "auto", ""),
        (b"", "application/json", "blob", "blob"),
    ],
)
def test_response_parameter_selects_decoding(
    body: bytes, content_type: str, response: str, read: Any
) -> None:
    found = output(send_request(respond_with(body, Content_Type=content_type), response=response))["body"]

    assert found == read or (read == "blob" and is_reference(found) and found["size"] == len(body))


def test_non_json_response_as_json_fails() -> None:
    assert error(send_request(respond_with(b"<html>"), response="json")).code == "HTTP_BODY"


def test_large_response_is_stored_as_blob_by_default() -> None:
    handler = respond_with(b'"' + b"x" * MAX_INLINE_BYTES + b'"', Content_Type="application/json")

    assert is_reference(output(send_request(handler, max_bytes=2 * MAX_INLINE_BYTES))["body"])
    assert (
        len(output(send_request(handler, max_bytes=2 * MAX_INLINE_BYTES, response="json"))["body"])
        == MAX_INLINE_BYTES
    )


@pytest.mark.parametrize(
    ("disposition", "resource", "name"),
    [
        ('attachment; filename="r.pdf"', "/x", "r.pdf"),
        ("attachment; filename*=UTF-8''gr%C3%BC%C3%9Fe.txt", "/x", "grüße.txt"),
        ('attachment; filename="../../etc/passwd"', "/x", "passwd"),
        ('attachment; filename="a\\\\b\\\\c.txt"', "/x", "c.txt"),
        ("", "/a/b.bin?c=/d", "b.bin"),
        ("", "/", None),
        ("attachment", "/%2e%2e", None),
    ],
)
def test_file_name_comes_from_header_or_path(disposition: str, resource: str, name: str | None) -> None:
    assert response_file_name(disposition, resource) == name


@given(st.text())
def test_file_name_contains_no_path_or_line_break(text: str) -> None:
    found = file_name(text)

    assert found is None or (
        found == found.strip() and not set(found) & set("/\\\r\n\0") and 0 < len(found) <= 200
    )


@given(
    st.recursive(
        st.none() | st.text() | st.integers(MIN_INT, MAX_INT), lambda inner: st.dictionaries(st.text(), inner)
    )
)
def test_arbitrary_value_is_not_reference(value: Any) -> None:
    assert not is_reference(value)


@pytest.mark.parametrize("get", [Blobs.get])
def test_invalid_reference_is_rejected(get: Callable[..., Any]) -> None:
    from rune.errors import NodeFailure

    for value in ({}, {"blob": "../x", "size": 1}, {"blob": f"x1/files/{'0' * 64}", "size": -1}):
        with pytest.raises(NodeFailure, match="not a blob reference"):
            asyncio.run(get(Blobs(MemoryBlob(), "x1"), value))


def containers(count: int) -> bytes:
    return b"[" + b"{}," * (count - 1) + b"1]"


def test_response_of_more_containers_than_a_payload_may_have_fails_before_it_is_decoded() -> None:
    body = containers(LIMITS.payload_containers + 1)

    found = error(send_request(respond_with(body, Content_Type="application/json")))

    assert found.code == "HTTP_TOO_LARGE"
    assert f"more than {LIMITS.payload_containers:,} lists and objects" in found.message


@pytest.mark.parametrize("wanted", ["auto", "json"])
def test_large_response_is_decoded_and_checked_off_the_event_loop(wanted: str) -> None:
    count = 400_000
    body = containers(count)

    begun = time.thread_time()
    found = output(send_request(respond_with(body, Content_Type="application/json"), response=wanted))
    on_loop = time.thread_time() - begun

    assert len(found["body"]) == count
    begun = time.thread_time()
    check_json(json.loads(body))
    assert on_loop < (time.thread_time() - begun) / 2
