"""Servers that try to wear a node out: it fails in time, with a code, within bounded memory, and shows no secret."""

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
from tests.unit.nodes.io.calling import Raw, call, listening, local_world
from tests.unit.nodes.io.test_smtp import MAIL
from tests.unit.nodes.running import error

OK = b"HTTP/1.1 200 OK\r\n"
MEGABYTE = 1024 * 1024


async def pause(seconds: float) -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=seconds)


def asked(talk: Raw, scheme: str = "http", **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        world = local_world()
        async with listening(talk) as port:
            url = f"{scheme}://127.0.0.1:{port}/x?token=s3cr3t&page=2"
            outcome = await call("http", {"url": url, **parameters}, world)
            await world.close()
        return outcome

    return asyncio.run(scenario())


def saying(first: bytes, again: bytes = b"", every: float = 0.0) -> Raw:
    """Says one thing, then another for ever."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        await writer.drain()
        while again:
            writer.write(again)
            await writer.drain()
            if every:
                await pause(every)

    return talk


DRIPPING: dict[str, Raw] = {
    "body": saying(OK + b"Content-Length: 1000000\r\n\r\n", b"x", 0.01),
    "body without an end": saying(OK + b"\r\n", b"x", 0.01),
    "chunks": saying(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.01),
    "headers": saying(OK, b"X: y\r\n", 0.05),
    "one header": saying(OK + b"X: ", b"y", 0.01),
    "first line": saying(b"HTTP/1.1 ", b"2", 0.05),
    "nothing": saying(b"", b"\r\n", 0.05),
    "interim answers": saying(b"", b"HTTP/1.1 103 Early\r\n\r\n", 0.02),
    "gzip": saying(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x", mtime=0)[:10], b"\x00", 0.02),
}


@pytest.mark.parametrize("where", DRIPPING)
def test_a_drip_is_not_waited_for(where: str) -> None:
    began = time.monotonic()

    found = error(asked(DRIPPING[where], timeout=0.4))

    assert found.code in ("HTTP_TIMEOUT", "HTTP_PROTOCOL")
    assert time.monotonic() - began < 60


def peak(run: Callable[[], Any]) -> float:
    """Megabytes that were in use at most."""
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
def test_what_does_not_end_costs_little(first: bytes, again: bytes) -> None:
    codes: list[str] = []

    used = peak(
        lambda: codes.append(error(asked(saying(first, again), max_bytes=2 * MEGABYTE, timeout=20)).code)
    )

    assert codes[0] in ("HTTP_TOO_LARGE", "HTTP_PROTOCOL")
    assert used < 24  # the server's own buffers are in it


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
def test_whatever_the_type_says_the_answer_is_read_or_refused(
    content_type: str, body: bytes, code: str | None
) -> None:
    head = (
        OK
        + b"Content-Type: "
        + content_type.encode("latin-1")
        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    )

    outcome = asked(saying(head + body), timeout=5)

    if code is not None:
        assert error(outcome).code == code
    else:
        read = outcome.value["body"]  # type: ignore[union-attr]
        assert isinstance(read, str) or is_reference(read)


CODES: list[tuple[str, Raw, dict[str, Any]]] = [
    ("HTTP_TIMEOUT", saying(OK, b"X: y\r\n", 0.05), {"timeout": 0.2}),
    ("HTTP_STATUS", saying(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), {"raise_on_status": "5xx"}),
    ("HTTP_TOO_LARGE", saying(OK + b"Content-Length: 9\r\n\r\n123456789"), {"max_bytes": 8}),
    ("HTTP_REDIRECT", saying(b"HTTP/1.1 302 F\r\nLocation: ?\r\nContent-Length: 0\r\n\r\n" * 9), {}),
    ("HTTP_PROTOCOL", saying(b"nonsense\r\n\r\n"), {}),
    ("HTTP_PROTOCOL", saying(OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx"), {}),
    ("HTTP_BODY", saying(OK + b"Content-Length: 1\r\n\r\nx"), {"response": "json"}),
    (
        "HTTP_PAGES",
        saying(OK + b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"),
        {"pagination": {"style": "page"}},
    ),
]


@pytest.mark.parametrize(("code", "talk", "parameters"), CODES, ids=[each[0] for each in CODES])
def test_every_error_names_the_address_without_its_secrets(
    code: str, talk: Raw, parameters: dict[str, Any]
) -> None:
    found = error(asked(talk, **{"timeout": 5, **parameters}))

    assert found.code == code
    assert "127.0.0.1" in found.message
    assert "s3cr3t" not in str(found)


def test_errors_of_the_connection_name_the_address_too() -> None:
    async def scenario() -> list[Error]:
        world = local_world()
        async with listening(saying(b"")) as gone:
            pass
        async with listening(saying(b"x\r\n\r\n")) as port:
            urls = [
                f"http://127.0.0.1:{gone}/?token=s3cr3t",
                f"https://127.0.0.1:{port}/?token=s3cr3t",
                "http://10.0.0.1/?token=s3cr3t",
            ]
            found = [error(await call("http", {"url": url, "timeout": 5}, world)) for url in urls]
        await world.close()
        return found

    found = asyncio.run(scenario())

    assert [each.code for each in found][0::2] == ["HTTP_CONNECT", "HTTP_BLOCKED"]
    assert found[1].code in ("HTTP_TLS", "HTTP_TIMEOUT")
    assert all("s3cr3t" not in str(each) and ".0.0.1" in each.message for each in found)


async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"220-still\r\n" * 1000)
        await writer.drain()


async def one_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"2")
        await writer.drain()
        await pause(0.02)


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 hi\r\n")
    while line := await reader.readline():
        if line.startswith(b"DATA"):
            return
        writer.write(b"250 ok\r\n")


async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\xff\xfe\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    "talk", [greeting, one_line, drip, hangs_up, nonsense], ids=lambda talk: talk.__name__
)
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_mail_server_that_behaves_badly_is_given_up(
    talk: Raw, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 2.0)
    found: list[Error] = []

    async def scenario() -> None:
        async with listening(talk) as port:
            outcome: Awaitable[Outcome] = call(
                "smtp", MAIL, local_world(smtp_url=f"{scheme}://127.0.0.1:{port}")
            )
            found.append(error(await outcome))

    used = peak(lambda: asyncio.run(scenario()))

    assert found[0].code in ("SMTP_CONNECT", "SMTP_TIMEOUT", "SMTP_REJECTED")
    assert used < 24
