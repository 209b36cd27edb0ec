"""Misbehaving HTTP and SMTP servers: nodes fail in time, within bounded memory, and leak no secret."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rune.core.execution.outcome import Error, Outcome
from rune.nodes.blobs import is_reference
from tests.support.io_nodes import TcpHandler, local_resources, run_node, tcp_server
from tests.support.services.listening import refusing_port
from tests.support.smtp_server import MAIL
from tests.unit.nodes.runner import error

OK = b"HTTP/1.1 200 OK\r\n"
MEGABYTE = 1024 * 1024


async def pause(seconds: float) -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=seconds)


def request_from(handler: TcpHandler, scheme: str = "http", **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        resources = local_resources()
        async with tcp_server(handler) as port:
            url = f"{scheme}://127.0.0.1:{port}/x?token=s3cr3t&page=2"
            outcome = await run_node("http", {"url": url, **parameters}, resources)
            await resources.close()
        return outcome

    return asyncio.run(scenario())


def raw_response(first: bytes, again: bytes = b"", every: float = 0.0) -> TcpHandler:
    """Sends `first`, then `again` for ever."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        await writer.drain()
        while again:
            writer.write(again)
            await writer.drain()
            if every:
                await pause(every)

    return handler


SLOW_RESPONSES: dict[str, TcpHandler] = {
    "body": raw_response(OK + b"Content-Length: 1000000\r\n\r\n", b"x", 0.01),
    "body without an end": raw_response(OK + b"\r\n", b"x", 0.01),
    "chunks": raw_response(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.01),
    "headers": raw_response(OK, b"X: y\r\n", 0.05),
    "one header": raw_response(OK + b"X: ", b"y", 0.01),
    "first line": raw_response(b"HTTP/1.1 ", b"2", 0.05),
    "nothing": raw_response(b"", b"\r\n", 0.05),
    "interim answers": raw_response(b"", b"HTTP/1.1 103 Early\r\n\r\n", 0.02),
    "gzip": raw_response(
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x", mtime=0)[:10], b"\x00", 0.02
    ),
}


@pytest.mark.parametrize("part", SLOW_RESPONSES)
def test_slow_response_times_out(part: str) -> None:
    started = time.monotonic()

    found = error(request_from(SLOW_RESPONSES[part], timeout=0.4))

    assert found.code in ("HTTP_TIMEOUT", "HTTP_PROTOCOL")
    assert time.monotonic() - started < 60


def peak_memory(run: Callable[[], Any]) -> float:
    """Peak memory in megabytes."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (OK + b"\r\n", b"x" * 65_536),
        (OK + b"Content-Length: 999999999999\r\n\r\n", b"x" * 65_536),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"\0" * 3 * MEGABYTE, mtime=0)),
        (OK + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(b"\0" * 100), b"\0" * 65_536),
        (OK, b"X-Endless: " + b"y" * 1000 + b"\r\n"),
    ],
    ids=["endless", "announced", "chunks", "bombs in a row", "more behind the end", "headers"],
)
def test_endless_response_uses_bounded_memory(first: bytes, again: bytes) -> None:
    codes: list[str] = []

    used = peak_memory(
        lambda: codes.append(
            error(request_from(raw_response(first, again), max_bytes=2 * MEGABYTE, timeout=20)).code
        )
    )

    assert codes[0] in ("HTTP_TOO_LARGE", "HTTP_PROTOCOL")
    assert used < 24  # including the buffers of the test server


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("application/json; charset=utf-16", b'{"a": 1}', "HTTP_BODY"),
        ("application/json; charset=utf-32", b"\xff\xff\xff\xff", "HTTP_BODY"),
        ("application/json", "ü".encode("latin-1"), "HTTP_BODY"),
        ("application/json; charset=zlib_codec", b"x\x9c", "HTTP_BODY"),
        ("text/plain; charset=utf-16", b"odd", None),
        ("text/plain; charset=\xff\xfe", b"\xff", None),
        ("text/plain; charset=rot13; charset=utf-8", b"x", None),
        ("text/plain; charset*=utf-8''a%00b", b"x", None),
        (";;;===,,,", b"\xff\x00", None),
        ("multipart/" + "x" * 5000, b"x", None),
    ],
    ids=range(10),
)
def test_odd_content_type_is_read_or_rejected(content_type: str, body: bytes, code: str | None) -> None:
    head = (
        OK
        + b"Content-Type: "
        + content_type.encode("latin-1")
        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    )

    outcome = request_from(raw_response(head + body), timeout=5)

    if code is not None:
        assert error(outcome).code == code
    else:
        read = outcome.value["body"]  # type: ignore[union-attr]
        assert isinstance(read, str) or is_reference(read)


CODES: list[tuple[str, TcpHandler, dict[str, Any]]] = [
    ("HTTP_TIMEOUT", raw_response(OK, b"X: y\r\n", 0.05), {"timeout": 0.2}),
    (
        "HTTP_STATUS",
        raw_response(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
        {"raise_on_status": "5xx"},
    ),
    ("HTTP_TOO_LARGE", raw_response(OK + b"Content-Length: 9\r\n\r\n123456789"), {"max_bytes": 8}),
    ("HTTP_REDIRECT", raw_response(b"HTTP/1.1 302 F\r\nLocation: ?\r\nContent-Length: 0\r\n\r\n" * 9), {}),
    ("HTTP_PROTOCOL", raw_response(b"nonsense\r\n\r\n"), {}),
    ("HTTP_PROTOCOL", raw_response(OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx"), {}),
    ("HTTP_BODY", raw_response(OK + b"Content-Length: 1\r\n\r\nx"), {"response": "json"}),
    (
        "HTTP_PAGES",
        raw_response(OK + b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"),
        {"pagination": {"style": "page"}},
    ),
]


@pytest.mark.parametrize(("code", "handler", "parameters"), CODES, ids=[each[0] for each in CODES])
def test_error_message_has_address_without_secret(
    code: str, handler: TcpHandler, parameters: dict[str, Any]
) -> None:
    found = error(request_from(handler, **{"timeout": 5, **parameters}))

    assert found.code == code
    assert "127.0.0.1" in found.message
    assert "s3cr3t" not in str(found)


def test_connection_error_has_address_without_secret() -> None:
    async def scenario() -> list[Error]:
        resources = local_resources()
        with refusing_port() as refused:
            async with tcp_server(raw_response(b"x\r\n\r\n")) as port:
                urls = [
                    f"http://127.0.0.1:{refused}/?token=s3cr3t",
                    f"https://127.0.0.1:{port}/?token=s3cr3t",
                    "http://10.0.0.1/?token=s3cr3t",
                ]
                found = [error(await run_node("http", {"url": url, "timeout": 5}, resources)) for url in urls]
        await resources.close()
        return found

    found = asyncio.run(scenario())

    assert [each.code for each in found][0::2] == ["HTTP_CONNECT", "HTTP_BLOCKED"]
    assert found[1].code in ("HTTP_TLS", "HTTP_TIMEOUT")
    assert all("s3cr3t" not in str(each) and ".0.0.1" in each.message for each in found)


async def endless_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"220-still\r\n" * 1000)
        await writer.drain()


async def endless_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def slow_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"2")
        await writer.drain()
        await pause(0.02)


async def close_at_data(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 hi\r\n")
    while line := await reader.readline():
        if line.startswith(b"DATA"):
            return
        writer.write(b"250 ok\r\n")


async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\xff\xfe\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    "handler",
    [endless_greeting, endless_line, slow_greeting, close_at_data, nonsense],
    ids=lambda handler: handler.__name__,
)
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_misbehaving_smtp_server_fails_node(
    handler: TcpHandler, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 2.0)
    found: list[Error] = []

    async def scenario() -> None:
        async with tcp_server(handler) as port:
            outcome: Awaitable[Outcome] = run_node(
                "smtp", MAIL, local_resources(smtp_url=f"{scheme}://127.0.0.1:{port}")
            )
            found.append(error(await outcome))

    used = peak_memory(lambda: asyncio.run(scenario()))

    assert found[0].code in ("SMTP_CONNECT", "SMTP_TIMEOUT", "SMTP_REJECTED")
    assert used < 24
