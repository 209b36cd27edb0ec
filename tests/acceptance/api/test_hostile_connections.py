"""Hostile clients: whatever one of them sends, others are served and the memory of the server is bounded.

Each row of the table is a way to misuse connections. While it lasts, a health check over a new connection must be
answered as fast as without it, up to a second, and a valid key must be accepted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.support.api_server import API, HELLO, WAITS
from tests.support.async_test import async_test
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

KEY = "k" * 32
LASTS_S = 1.5
MAX_GROWTH_KIB = 48 * 1024
MAX_SLOWER_S = 1.0


class Target(msgspec.Struct, frozen=True):
    """An attacked server and what is known of it."""

    url: str
    pid: int
    hook: str
    execution: str
    viewer: str

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.url.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port))

    async def send(self, head: bytes, repeated: bytes, *, megabytes: int = 12, reads: bool = False) -> None:
        """Send bytes over one connection as fast as the server takes them, until it disconnects."""
        reader, writer = await self.connect()
        taking = asyncio.create_task(_discard(reader)) if reads else None
        block = repeated * max(1, 65_536 // len(repeated))
        try:
            writer.write(head)
            for _ in range(megabytes * 1024 * 1024 // len(block)):
                writer.write(block)
                await writer.drain()
            await (taking or asyncio.Event().wait())
        except OSError:
            return
        finally:
            if taking is not None:
                taking.cancel()
            writer.transport.abort()

    async def send_again(self, head: bytes, repeated: bytes = b"", connections: int = 32) -> None:
        """Send over several connections at a time, each replaced when the server disconnects it."""

        async def again() -> None:
            while True:
                with contextlib.suppress(OSError):
                    await self.send(head, repeated or b"\r\n", megabytes=1, reads=True)

        await asyncio.gather(*(again() for _ in range(connections)))

    async def abandon(self, sent: bytes, *, reset: bool, connections: int = 200) -> None:
        """Connect, send and disconnect at once, again and again, from several addresses."""
        host, port = self.url.removeprefix("http://").split(":")
        loop = asyncio.get_running_loop()

        async def again(source: str) -> None:
            while True:
                with contextlib.suppress(OSError), socket.socket() as client:
                    client.setblocking(False)
                    if reset:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.bind((source, 0))
                    await loop.sock_connect(client, (host, int(port)))
                    await loop.sock_sendall(client, sent)

        await asyncio.gather(*(again(f"127.0.0.{2 + number % 200}") for number in range(connections)))


async def _discard(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(2**20):
            pass


def request(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


def bearer(key: str) -> str:
    return f"authorization: Bearer {key}"


def frame(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    """Return a masked frame of a WebSocket; the mask is zero."""
    return struct.pack("!BB", opcode | (0x80 if final else 0), 0x80 | len(payload)) + bytes(4) + payload


def upgrade(path: str, *headers: str) -> bytes:
    nonce = base64.b64encode(bytes(16)).decode()
    return request(
        "GET",
        path,
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        f"sec-websocket-key: {nonce}",
        *headers,
    )


def followed(target: Target) -> bytes:
    """Return the request of a viewer that follows an execution over a WebSocket."""
    return upgrade(f"{API}/executions/{target.execution}/events", bearer(target.viewer))


CHUNKED = "transfer-encoding: chunked"
CHUNK = b"1\r\na\r\n"
TINY = b"GET /x HTTP/1.1\r\n\r\n"
STARTS = f"{API}/executions"

Abuse = Callable[[Target], Awaitable[None]]
ABUSES: dict[str, Abuse] = {
    "pipelined requests": lambda target: target.send(b"", TINY),
    "pipelined requests whose answers are read": lambda target: target.send(b"", TINY, reads=True),
    "pipelined requests behind a stream": lambda target: target.send(
        request("GET", f"{API}/executions/{target.execution}/events", bearer(target.viewer)), TINY
    ),
    "pipelined pages that are never read": lambda target: target.send(b"", request("GET", "/docs")),
    "pipelined bodies": lambda target: target.send(
        b"", request("POST", STARTS, "content-length: 40") + b"\r\n\r\n" * 10
    ),
    "chunks of a byte after a refusal": lambda target: target.send_again(
        request("POST", STARTS, CHUNKED), CHUNK
    ),
    "chunks of a byte after an unknown path": lambda target: target.send(
        request("POST", "/x", CHUNKED), CHUNK
    ),
    "chunks of a byte to a webhook": lambda target: target.send_again(
        request("POST", target.hook, CHUNKED), CHUNK
    ),
    "chunk of blank lines to a webhook": lambda target: target.send_again(
        request("POST", target.hook, CHUNKED) + b"fffff\r\n", b"\r\n\r\n"
    ),
    "blank lines": lambda target: target.send_again(TINY, b"\r\n\r\n"),
    "endless chunk extension": lambda target: target.send(
        request("POST", target.hook, CHUNKED) + b"1;", b"a"
    ),
    "trailers": lambda target: target.send(request("POST", "/x", CHUNKED) + b"0\r\n", b"a: b\r\n"),
    "cookies": lambda target: target.send_again(
        request("GET", STARTS, "cookie: " + "a=b;" * 16_000) * 4
    ),
    "pings": lambda target: target.send_again(followed(target), frame(9)),
    "pongs": lambda target: target.send_again(followed(target), frame(10)),
    "empty messages": lambda target: target.send_again(followed(target), frame(1)),
    "endless message of empty parts": lambda target: target.send(
        followed(target) + frame(1, final=False), frame(0, final=False)
    ),
    "pings before an upgrade is accepted": lambda target: target.send_again(
        upgrade(f"{API}/executions/{target.execution}/events", bearer("wrong")), frame(9)
    ),
    "wrong keys": lambda target: target.send_again(
        request("GET", STARTS, bearer("rune_0000000000000000_" + "0" * 43)), b"", connections=45
    ),
    "requests whose clients disconnect at once": lambda target: target.abandon(
        request("GET", STARTS, bearer(KEY)), reset=False
    ),
    "requests whose clients reset the connection at once": lambda target: target.abandon(
        request("GET", STARTS, bearer(KEY)), reset=True
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    process = UpProcess(tmp_path_factory.mktemp("attacked"), RUNE_API_KEY=KEY)
    url = process.start("--no-examples")
    try:
        yield _prepare(url, process.said["pid"])
    finally:
        process.stop()


def _prepare(url: str, pid: int) -> Target:
    hook = {
        "id": "hook",
        "nodes": [{"id": "in", "type": "webhook"}, *HELLO["nodes"][1:]],
        "edges": HELLO["edges"],
    }
    with httpx.Client(base_url=url + API, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
        for each in (hook, WAITS):
            assert http.put(f"/workflows/{each['id']}", json=each).is_success
        (trigger,) = http.get("/triggers").json()["triggers"]
        execution = http.post("/workflows/waits/executions", json={}).json()["execution_id"]
        viewer = http.post("/keys", json={"name": "v", "role": "viewer"}).json()["key"]
    return Target(url, pid, trigger["webhook"]["path"], execution, viewer)


@pytest.mark.parametrize("abuse", ABUSES)
@async_test
async def test_server_answers_others_and_keeps_its_memory_during(abuse: str, target: Target) -> None:
    usual = await slowest_check(target, seconds=0.3)
    before = peak_kib(target.pid, reset=True)
    attack = asyncio.ensure_future(ABUSES[abuse](target))
    try:
        slowest = await slowest_check(target, seconds=LASTS_S)
    finally:
        attack.cancel()
        await asyncio.gather(attack, return_exceptions=True)
    after_it = await slowest_check(target, seconds=0.0)
    growth = peak_kib(target.pid) - before
    # The processes of other tests share the cores.
    share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert max(slowest, after_it) < usual + MAX_SLOWER_S * share
    assert growth < MAX_GROWTH_KIB


async def slowest_check(target: Target, seconds: float) -> float:
    """Ask for the health and, with a valid key, for a page, over new connections; return the longest time."""
    slowest, end = 0.0, time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        async with httpx.AsyncClient(base_url=target.url, timeout=60, trust_env=False) as http:
            health = await http.get("/healthz")
            slowest = max(slowest, time.monotonic() - begun)
            listed = await http.get(f"{API}/executions", headers={"Authorization": f"Bearer {KEY}"})
        assert (health.status_code, listed.status_code) == (200, 200), listed.text
        if time.monotonic() >= end:
            return slowest


def peak_kib(pid: int, *, reset: bool = False) -> int:
    """Return the largest memory of a process since the last reset."""
    folder = Path(f"/proc/{pid}")
    if reset:
        (folder / "clear_refs").write_text("5")
    lines = (folder / "status").read_text().splitlines()
    return int(next(each for each in lines if each.startswith("VmHWM")).split()[1])
