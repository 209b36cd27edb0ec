"""`http` with bodies that are more than text: forms, files and bytes on the way out, blobs on the way in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import BodyPartReader, web
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rune.core.execution.outcome import Outcome
from rune.nodes.blobs import Blobs, Reference, file_name, is_reference
from rune.nodes.io.http_client.response import MAX_INLINE_BYTES, response_file_name
from rune.nodes.schema import parameter_schema
from rune.testing.nodes import MemoryBlob
from tests.unit.nodes.io.calling import Handler, call, local_world, serving
from tests.unit.nodes.io.test_http import answering, ask
from tests.unit.nodes.running import error, output

BYTES = bytes(range(256))


def put(store: MemoryBlob, data: bytes, *about: str, execution: str = "x1") -> dict[str, Any]:
    return asyncio.run(Blobs(store, execution).put(data, *about))


def ask_with(store: MemoryBlob, handler: Handler, **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        world = local_world()
        async with serving(handler) as port:
            url = f"http://127.0.0.1:{port}{parameters.pop('path', '/')}"
            outcome = await call("http", {"url": url, **parameters}, world, store=store)
            await world.close()
        return outcome

    return asyncio.run(scenario())


class Form:
    """A server that reads a form with files, as browsers send it."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str | None, str | None, bytes]] = []
        self.raw = b""
        self.content_type = ""

    async def answer(self, request: web.Request) -> web.Response:
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


def test_a_form_with_fields_and_files() -> None:
    store, form = MemoryBlob(), Form()
    picture = put(store, BYTES, "a b.png", "image/png")
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

    output(ask_with(store, form.answer, method="POST", body=body, body_type="multipart"))

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


def test_the_content_type_asks_for_a_form_with_files_too() -> None:
    form = Form()

    output(ask(form.answer, method="POST", body={"a": 1}, headers={"Content-Type": "multipart/form-data"}))

    assert form.parts == [("a", None, None, b"1")]


@pytest.mark.parametrize("name", ['a"; filename="x', "a\r\nEvil: 1", "a\r\n\r\nbody", "ü", "\x00"])
def test_no_name_breaks_out_of_its_part(name: str) -> None:
    form = Form()
    body = {name: "v", "file": {"filename": name, "content": "x"}, "last": "w"}

    output(ask(form.answer, method="POST", body=body, body_type="multipart"))

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
def test_the_node_says_how_its_body_is_sent(body: Any, body_type: str, raw: bytes, content_type: str) -> None:
    form = Form()

    output(ask(form.answer, method="POST", body=body, body_type=body_type))

    assert (form.raw, form.content_type) == (raw, content_type)


@pytest.mark.parametrize("body_type", ["auto", "binary"])
def test_a_reference_is_sent_as_its_bytes(body_type: str) -> None:
    store, form = MemoryBlob(), Form()
    reference = put(store, BYTES, "x.png", "image/png")

    output(ask_with(store, form.answer, method="PUT", body=reference, body_type=body_type))

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
def test_bodies_that_cannot_be_sent(parameters: dict[str, Any], code: str) -> None:
    form = Form()

    assert error(ask(form.answer, method="POST", **parameters)).code == code
    assert (form.raw, form.parts) == (b"", [])


def test_blobs_of_other_executions_are_out_of_reach() -> None:
    store, form = MemoryBlob(), Form()
    foreign = put(store, b"secret", execution="x2")

    found = error(ask_with(store, form.answer, method="POST", body=foreign))

    assert (found.code, form.raw) == ("BLOB_UNKNOWN", b"")


def test_bytes_come_as_a_reference() -> None:
    store = MemoryBlob()

    body = output(ask_with(store, answering(BYTES, Content_Type="image/png"), path="/pics/a%20b.png?x=1"))[
        "body"
    ]

    digest = hashlib.sha256(BYTES).hexdigest()
    assert body == {"blob": f"x1/files/{digest}", "size": 256, "content_type": "image/png", "name": "a b.png"}
    assert store.kept == {body["blob"]: BYTES}
    assert is_reference(body)
    Draft202012Validator(parameter_schema(Reference)).validate(body)


def test_the_same_bytes_are_kept_once() -> None:
    store, handler = MemoryBlob(), answering(BYTES, Content_Type="image/png")

    first, again = (output(ask_with(store, handler))["body"]["blob"] for _ in range(2))

    assert first == again


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
def test_the_node_says_what_becomes_of_the_answer(
    body: bytes, content_type: str, response: str, read: Any
) -> None:
    found = output(ask(answering(body, Content_Type=content_type), response=response))["body"]

    assert found == read or (read == "blob" and is_reference(found) and found["size"] == len(body))


def test_what_should_be_json_and_is_not_fails() -> None:
    assert error(ask(answering(b"<html>"), response="json")).code == "HTTP_BODY"


def test_what_is_large_comes_as_a_reference_unless_it_is_asked_for() -> None:
    handler = answering(b'"' + b"x" * MAX_INLINE_BYTES + b'"', Content_Type="application/json")

    assert is_reference(output(ask(handler, max_bytes=2 * MAX_INLINE_BYTES))["body"])
    assert (
        len(output(ask(handler, max_bytes=2 * MAX_INLINE_BYTES, response="json"))["body"]) == MAX_INLINE_BYTES
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
def test_a_file_has_the_name_that_the_server_gives_it(
    disposition: str, resource: str, name: str | None
) -> None:
    assert response_file_name(disposition, resource) == name


@given(st.text())
def test_a_name_is_never_a_path_or_a_line(text: str) -> None:
    found = file_name(text)

    assert found is None or (
        found == found.strip() and not set(found) & set("/\\\r\n\0") and 0 < len(found) <= 200
    )


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_nothing_else_is_taken_for_a_reference(value: Any) -> None:
    assert not is_reference(value)


@pytest.mark.parametrize("handled", [Blobs.get])
def test_what_is_no_reference_is_refused(handled: Callable[..., Any]) -> None:
    from rune.errors import NodeFailure

    for odd in ({}, {"blob": "../x", "size": 1}, {"blob": f"x1/files/{'0' * 64}", "size": -1}):
        with pytest.raises(NodeFailure, match="not a blob reference"):
            asyncio.run(handled(Blobs(MemoryBlob(), "x1"), odd))
