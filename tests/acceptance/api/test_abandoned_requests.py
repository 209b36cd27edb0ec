"""Requests whose clients disconnect before the server has begun with them."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from pathlib import Path

import pytest

from tests.support.api_server import API, HELLO, WAITS, RunningServer, run
from tests.support.waiting import until

KEY = "k" * 32
SERVED = 4  # abandoned requests per second


def abandon(server: RunningServer, sent: bytes, *, reset: bool = False) -> None:
    """Connect, send a request and disconnect, while the server, which has the same thread, does nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(sent)


def start(number: int) -> bytes:
    body = b'{"input": {"name": "%d"}}' % number
    return (
        f"POST {API}/workflows/hello/executions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def test_most_of_a_flood_of_abandoned_requests_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.bootstrap.http.ABANDONED_PER_S", SERVED)

    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        for number in range(100):
            abandon(server, start(number), reset=number % 2 == 0)
        assert (await server.http.get("/healthz")).status_code == 200
        found = await server.get("/executions?limit=1000")
        assert len(found["executions"]) < 10 * SERVED

    run(tmp_path, work)


def test_single_request_whose_client_disconnects_is_served(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        abandon(server, start(1))

        async def completed() -> bool:
            found = await server.get("/executions?status=completed")
            return len(found["executions"]) == 1

        await until(completed)

    run(tmp_path, work)


def test_audit_log_has_the_address_of_a_connection_that_was_reset(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        sent = f"GET {API}/executions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n"
        abandon(server, sent.encode(), reset=True)

        async def refused() -> bool:
            found = await server.get("/audit-log?action=access.refused")
            return [each["address"] for each in found["entries"]] == ["127.0.0.1"]

        await until(refused, patience=20)

    run(tmp_path, work, key=KEY)


def upgrade(path: str) -> bytes:
    """Return a request for a WebSocket, without a key."""
    return (
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("key", ["", KEY])
def test_aborted_upgrade_is_no_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        host, port = server.url.removeprefix("http://").split(":")
        for path in (f"{API}/executions/{execution}/events", f"{API}/executions/none/events"):
            for _ in range(20):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(upgrade(path))
                await writer.drain()
                writer.transport.abort()
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(upgrade(path))
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 ")
                writer.transport.abort()
        await server.get("/workflows")

    run(tmp_path, work, key=key)

    # The watchdog reports a busy machine, which no client has caused.
    records = [record for record in caplog.records if record.name != "rune.watchdog"]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []
