"""The `http` node: requests, responses, limits and connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from rune.core.definition.model import Retry
from rune.core.execution.outcome import Failure, Outcome, Output
from rune.nodes.io import http
from tests.support.io_nodes import (
    KEY,
    NOW,
    echo,
    http_server,
    local_resources,
    respond_with,
    run_node,
    send_request,
)
from tests.unit.nodes.runner import error, output


def echoed_request(**parameters: Any) -> Any:
    return output(send_request(echo, **parameters))["body"]


def test_non_text_query_and_headers_are_sent() -> None:
    sent = echoed_request(
        path="/p?z=0",
        query={"n": 2, "f": 1.5, "b": True, "t": "a b&c", "none": None, "many": [1, "x"]},
        headers={"X-N": 3, "X-B": False, "X-None": None, "X-Many": [1, 2]},
    )

    assert sent["path"] == "/p?z=0&n=2&f=1.5&b=true&t=a+b%26c&many=1&many=x"
    assert sent["headers"]["x-n"] == "3"
    assert sent["headers"]["x-b"] == "false"
    assert sent["headers"]["x-many"] == "1, 2"
    assert "x-none" not in sent["headers"]


@pytest.mark.parametrize(
    ("body", "headers", "text", "content_type"),
    [
        ({"a": [1, None]}, {}, '{"a":[1,null]}', "application/json"),
        ([1], {}, "[1]", "application/json"),
        (5, {}, "5", "application/json"),
        ("plain ü", {}, "plain ü", "text/plain; charset=utf-8"),
        ("<a/>", {"content-type": "application/xml"}, "<a/>", "application/xml"),
        (
            {"a": 1, "b": ["x y", "&"], "c": None},
            {"Content-Type": "application/x-www-form-urlencoded"},
            "a=1&b=x+y&b=%26",
            "application/x-www-form-urlencoded",
        ),
    ],
)
def test_body_is_encoded_by_content_type(
    body: Any, headers: dict[str, str], text: str, content_type: str
) -> None:
    sent = echoed_request(method="POST", body=body, headers=headers)

    assert sent["body"] == text
    assert sent["headers"]["content-type"] == content_type


def test_large_body_is_sent() -> None:
    async def measure(request: web.Request) -> web.Response:
        return web.json_response([request.content_length, len(await request.read())])

    outcome = send_request(measure, method="PUT", body="x" * 900_000)

    assert output(outcome)["body"] == [900_000, 900_000]


def test_idempotency_key_header_is_sent() -> None:
    assert echoed_request()["headers"]["idempotency-key"] == KEY
    assert "idempotency-key" not in echoed_request(key="")["headers"]
    assert echoed_request(headers={"Idempotency-Key": "mine"})["headers"]["idempotency-key"] == "mine"


def test_numeric_parameters_may_be_text() -> None:
    parameters = {
        "timeout": "5",
        "max_bytes": "1000000",
        "follow_redirects": "true",
        "raise_on_status": "404",
    }

    assert output(send_request(respond_with("x"), **parameters))["status"] == 200


def test_retry_parameters_become_node_policy() -> None:
    assert http.TYPE.retry is not None
    found = http.TYPE.retry({"retry": "3", "retry_delay": "0.5"})
    assert found is not None

    policy = Retry(**found)

    assert (policy.max_attempts, policy.initial_delay, policy.backoff) == (4, 0.5, 1.0)


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nEvil: 1"},
        {"X": "a\x00"},
        {"X\r\nEvil": "1"},
        {"X Y": "1"},
        {"": "1"},
        {"Host": "inside"},
        {"Transfer-Encoding": "chunked"},
        {"content-length": 5},
        {"Proxy-Authorization": "x"},
    ],
)
def test_invalid_headers_are_rejected(headers: dict[str, Any]) -> None:
    assert error(send_request(echo, headers=headers)).code == "BAD_PARAMETER"


@pytest.mark.parametrize(
    ("body", "content_type", "read"),
    [
        (b'{"a": 1}', "application/json", {"a": 1}),
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        ('{"a": "ü"}'.encode("utf-16"), "application/json; charset=utf-16", {"a": "ü"}),
        (b"", "application/json", None),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        ("ü".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ü"),
        (b"\xff", "text/plain; charset=unicode_escape", "\ufffd"),
        (b"\xff", "text/plain; charset=no-such", "\ufffd"),
        ("ü".encode(), "application/unheard-of", "ü"),
        (b"9007199254740993", "application/json", 9007199254740993),
    ],
)
def test_response_is_decoded_by_content_type(body: bytes, content_type: str, read: Any) -> None:
    assert output(send_request(respond_with(body, Content_Type=content_type)))["body"] == read


def test_response_headers_are_lower_case() -> None:
    async def handle(request: web.Request) -> web.Response:
        response = web.Response(text="x", headers={"X-One": "1"})
        response.headers.add("X-Two", "a")
        response.headers.add("X-Two", "b")
        response.headers.add("Set-Cookie", "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT")
        return response

    found = output(send_request(handle))

    assert found["headers"]["x-one"] == "1"
    assert found["headers"]["x-two"] == "a, b"
    assert found["headers"]["set-cookie"] == ["a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT"]
    assert found["duration_ms"] >= 0


@pytest.mark.parametrize(
    "body",
    [b"{", b"NaN", b"\xff", b"<html>", b"[" * 5000 + b"]" * 5000, b'{"a":1,"a":2}', b"1" * 5000],
)
def test_invalid_json_response_fails(body: bytes) -> None:
    assert error(send_request(respond_with(body, Content_Type="application/json"))).code == "HTTP_BODY"


@pytest.mark.parametrize(
    ("statuses", "status", "fails"),
    [
        (None, 500, False),
        ("4xx,5xx", 404, True),
        ("4xx, 5XX", 503, True),
        ("404", 404, True),
        (404, 404, True),
        ("404", 500, False),
        ("4xx", 302, False),
    ],
)
def test_raise_on_status_decides_failure(statuses: Any, status: int, fails: bool) -> None:
    outcome = send_request(respond_with("why", status), raise_on_status=statuses)

    assert isinstance(outcome, Failure) is fails
    if fails:
        assert error(outcome).code == "HTTP_STATUS"
        assert error(outcome).details == {"status": status, "body": "why"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("0", 0), ("Wed, 01 Jan 2020 00:00:00 GMT", 0), ("soon", None), ("-1", None)],
)
def test_retry_after_sets_retry_time(text: str, seconds: int | None) -> None:
    found = error(send_request(respond_with("", 503, Retry_After=text), raise_on_status="5xx"))

    assert found.details.get("retry_at") == (None if seconds is None else NOW + 1000 * seconds)


def test_error_message_hides_secret_in_query() -> None:
    found = error(
        send_request(respond_with("", 500), path="/x?api_key=hunter2&page=3", raise_on_status="5xx")
    )

    assert "hunter2" not in found.message
    assert "page=3" in found.message


Compress = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate), ("identity", bytes)],
)
def test_compressed_response_is_decompressed(encoding: str, compress: Compress) -> None:
    data = json.dumps(list(range(5000))).encode()

    found = output(
        send_request(respond_with(compress(data), Content_Encoding=encoding, Content_Type="application/json"))
    )

    assert found["body"] == list(range(5000))


def test_gzip_with_several_members_is_decompressed() -> None:
    data = gzip.compress(b"one ", mtime=0) + gzip.compress(b"two", mtime=0)

    assert (
        output(send_request(respond_with(data, Content_Encoding="gzip", Content_Type="text/plain")))["body"]
        == "one two"
    )


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_decompression_bomb_fails(encoding: str, compress: Compress) -> None:
    found = error(send_request(respond_with(compress(b"\0" * 50_000_000), Content_Encoding=encoding)))

    assert found.code == "HTTP_TOO_LARGE"
    assert "times its size" in found.message


def test_max_bytes_applies_to_decompressed_size() -> None:
    handler = respond_with(gzip.compress(b"x" * 2000, mtime=0), Content_Encoding="gzip")

    assert error(send_request(handler, max_bytes=1999)).code == "HTTP_TOO_LARGE"
    assert len(output(send_request(handler, max_bytes=2000))["body"]) == 2000


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"no gzip", "gzip"), (gzip.compress(b"x" * 500, mtime=0)[:-12], "gzip"), (b"x", "br")],
)
def test_invalid_compression_fails(body: bytes, encoding: str) -> None:
    assert error(send_request(respond_with(body, Content_Encoding=encoding))).code == "HTTP_PROTOCOL"


def test_endless_response_is_aborted() -> None:
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)
            sent += 65_536

    assert error(send_request(handle, max_bytes=1_000_000)).code == "HTTP_TOO_LARGE"
    assert sent < 20_000_000


def test_slow_response_times_out() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.Event().wait()
        return response

    found = error(send_request(handle, timeout=0.2))

    assert found.code == "HTTP_TIMEOUT"
    assert "0.2 s" in found.message


def test_follow_next_collects_linked_pages() -> None:
    async def handle(request: web.Request) -> web.Response:
        page = int(request.query.get("page", "1"))
        link = f'</x?page={page - 1}>; rel="prev", </x?page={page + 1}>; rel="next"' if page < 4 else ""
        return web.json_response([page], headers={"Link": link})

    assert output(send_request(handle, follow_next=True))["body"] == [1, 2, 3, 4]
    limited = output(send_request(handle, follow_next=2))
    assert (limited["body"], limited["pages"]) == ([1, 2, 3], 3)
    assert output(send_request(handle))["body"] == [1]


def test_requests_share_limited_connections() -> None:
    active, peak, ports = 0, 0, set()
    three = asyncio.Barrier(3)

    async def handle(request: web.Request) -> web.Response:
        nonlocal active, peak
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        active += 1
        peak = max(peak, active)
        await three.wait()
        active -= 1
        return web.Response(text="x")

    async def scenario() -> list[Outcome]:
        resources = local_resources(http_per_host=3)
        async with http_server(handle) as port:
            calls: list[Awaitable[Outcome]] = [
                run_node("http", {"url": f"http://127.0.0.1:{port}/"}, resources) for _ in range(30)
            ]
            outcomes = await asyncio.gather(*calls)
            await resources.close()
        return list(outcomes)

    assert all(isinstance(each, Output) for each in asyncio.run(scenario()))
    assert peak == 3
    assert len(ports) <= 3


def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert output(send_request(respond_with("x")))["status"] == 200
