"""Limits of connections, request heads, bodies and event streams."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import resource
import socket
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rune.server import connections
from tests.support.api_server import API, HELLO, WAITS, RunningServer, run
from tests.support.async_test import async_test
from tests.support.up_process import UpProcess
from tests.support.waiting import until

pytestmark = pytest.mark.long

HOST = b"host: localhost\r\n"
KEY = "k" * 32


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def answer_to(url: str, data: bytes) -> tuple[int, dict[str, str], Any]:
    """Send bytes and return status, headers and document of the response, after which the server disconnects."""
    reader, writer = await connect(url)
    try:
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    except ConnectionError:
        raise AssertionError("disconnected without a response") from None
    finally:
        writer.close()
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines[1:])}
    return int(lines[0].split()[1]), headers, json.loads(body)


HEADS: dict[str, tuple[bytes, int, str]] = {
    "url": (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "URL_TOO_LONG"),
    "many headers": (
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 101 + b"\r\n",
        431,
        "HEAD_TOO_LARGE",
    ),
    "large header": (b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431, "HEAD_TOO_LARGE"),
    "endless header": (b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 400_000, 431, "HEAD_TOO_LARGE"),
    "endless name": (b"GET /healthz HTTP/1.1\r\n" + b"y" * 400_000, 431, "HEAD_TOO_LARGE"),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "BAD_REQUEST"),
    "two hosts": (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400, "BAD_REQUEST"),
    "no http": (b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n", 400, "BAD_REQUEST"),
}


@pytest.mark.parametrize("case", HEADS)
def test_head_beyond_limit_is_rejected_with_problem(case: str, tmp_path: Path) -> None:
    data, status, code = HEADS[case]

    async def work(server: RunningServer) -> None:
        found, headers, document = await answer_to(server.url, data)
        assert (found, document["code"]) == (status, code)
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-request-id"] == document["request_id"] != ""
        assert (await server.http.get("/healthz")).status_code == 200

    run(tmp_path, work, key=KEY)


def test_head_within_limits_is_accepted(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        headers = {f"x-{number}": "y" * 500 for number in range(90)}
        answer = await server.http.get("/healthz", headers=headers, params={"q": "a" * 8_000})
        assert answer.status_code == 200

    run(tmp_path, work)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nx: y\r\n"])
def test_late_head_is_rejected_with_timeout(sent: bytes, tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        status, _, document = await answer_to(server.url, sent)
        assert (status, document["code"]) == (408, "TOO_SLOW")

    run(tmp_path, work, api_head_timeout=0.2)


@pytest.mark.parametrize("ending", ["waits", "disconnects"])
def test_answered_request_leaves_nothing_of_its_head_in_memory(ending: str, tmp_path: Path) -> None:
    number = 40
    head = b"GET /healthz HTTP/1.1\r\n" + HOST + b"".join(b"a%d: %s\r\n" % (n, b"b" * 600) for n in range(97))

    async def work(server: RunningServer) -> None:
        writers: list[asyncio.StreamWriter] = []
        for begun in (False, True):  # the first requests fill caches
            if begun:
                gc.collect()
                gc.disable()  # it runs too seldom to help during an attack
                tracemalloc.start()
            for _ in range(number):
                reader, writer = await connect(server.url)
                writer.write(head + b"\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                await reader.readuntil(b"}")
                writers.append(writer)
                if ending == "disconnects":
                    writer.close()
                    await writer.wait_closed()
        await server.get("/me")
        kept = tracemalloc.get_traced_memory()[0]
        for each in writers:
            each.close()
        assert kept < number * len(head) // 2

    try:
        run(tmp_path, work)
    finally:
        tracemalloc.stop()
        gc.enable()


def test_slow_body_is_rejected_with_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_CHECK_S", 0.2)
    path = f"{API}/executions".encode()
    data = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"content-length: 100\r\n\r\n{"

    async def work(server: RunningServer) -> None:
        status, _, document = await answer_to(server.url, data)
        assert (status, document["code"]) == (408, "TOO_SLOW")

    run(tmp_path, work)


def test_body_that_continues_after_response_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_CHECK_S", 0.2)
    data = b"POST /none HTTP/1.1\r\n" + HOST + b"content-length: 1000000\r\n\r\n{"

    async def work(server: RunningServer) -> None:
        status, _, document = await answer_to(server.url, data)
        assert (status, document["code"]) == (404, "NOT_FOUND")

    run(tmp_path, work)


def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    paths = [f"/{number}" for number in range(200)]
    post = b"POST /%s HTTP/1.1\r\n" + HOST + b"content-length: 6\r\n\r\n\r\n\r\n{}"
    get = b"GET /%s HTTP/1.1\r\n" + HOST + b"\r\n"
    chunked = (
        b"POST /%s HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n"
    )
    kinds = (get, post, chunked)
    requests = b"".join(kinds[at % 3] % path[1:].encode() for at, path in enumerate(paths))
    last = b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"

    async def work(server: RunningServer) -> None:
        for size in (1, 7, len(requests)):
            reader, writer = await connect(server.url)
            for start in range(0, len(requests), size):
                writer.write(requests[start : start + size])
                await asyncio.sleep(0)
            writer.write(last)
            answers = (await reader.read()).decode()
            assert re.findall(r"HTTP/1.1 (\d+)", answers) == ["404"] * len(paths) + ["200"]
            writer.close()

    run(tmp_path, work, key=KEY)


def test_body_after_refusal_leaves_the_connection_usable_if_small(tmp_path: Path) -> None:
    head = f"POST {API}/executions HTTP/1.1\r\n".encode() + HOST

    async def statuses(url: str, size: int) -> list[str]:
        reader, writer = await connect(url)
        writer.write(head + b"content-length: %d\r\n\r\n" % size)
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(b"x" * size)
            await writer.drain()
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")
        rest = (await reader.read()).decode()
        writer.close()
        return re.findall(r"HTTP/1.1 (\d+)", rest)

    async def work(server: RunningServer) -> None:
        assert await statuses(server.url, 1_000) == ["200"]
        assert await statuses(server.url, 1_000_000) == []

    run(tmp_path, work, key=KEY)


def test_body_of_many_small_chunks_is_rejected(tmp_path: Path) -> None:
    head = f"POST {API}/executions HTTP/1.1\r\n".encode() + HOST + b"transfer-encoding: chunked\r\n\r\n"

    async def work(server: RunningServer) -> None:
        status, _, document = await answer_to(server.url, head + b"1\r\n{\r\n" * 5_000)
        assert (status, document["code"]) == (400, "BAD_REQUEST")
        assert "1,024 chunks" in document["detail"]

    run(tmp_path, work)


def test_client_that_does_not_read_its_response_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.1)
    protocols: list[type[connections.BoundedHttpProtocol]] = []

    def protocol(limits: connections.ConnectionLimits) -> type[connections.BoundedHttpProtocol]:
        protocols.append(connections.bounded_protocol(limits))
        return protocols[-1]

    monkeypatch.setattr("rune.bootstrap.http.bounded_protocol", protocol)
    page = b"GET /static/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST + b"\r\n"

    async def work(server: RunningServer) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        host, port = server.url.removeprefix("http://").split(":")
        loop = asyncio.get_running_loop()
        await loop.sock_connect(plain, (host, int(port)))
        await loop.sock_sendall(plain, page * 20)

        async def is_disconnected() -> bool:
            return len(protocols[0].table) == 0

        try:
            await until(is_disconnected)
        finally:
            plain.close()

    run(tmp_path, work)


@pytest.mark.parametrize("kind", ["ping", "text"])
def test_socket_that_sends_too_much_is_closed_with_reason(kind: str, tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        address = server.url.replace("http", "ws") + f"{API}/executions/{execution}/events"
        async with connect_socket(address) as client:
            await client.recv()
            await (await client.ping())
            await client.send("ignored")

            async def send_on() -> None:
                while True:
                    await (client.ping() if kind == "ping" else client.send("x" * 100))
                    await asyncio.sleep(0)

            with pytest.raises(ConnectionClosed) as closed:
                await send_on()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert "512 bytes per second" in closed.value.rcvd.reason

    run(tmp_path, work)


def test_new_connection_replaces_the_one_that_waits_longest(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        waiting = [await connect(server.url) for _ in range(6)]
        async with httpx.AsyncClient(base_url=server.url) as http:
            answer = await http.get("/healthz")
        assert answer.status_code == 200
        assert await waiting[0][0].read() == b""
        for _, writer in waiting:
            writer.close()

    run(tmp_path, work, api_connections_per_address=4)


def test_connection_beyond_streams_in_use_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        for _ in range(4):
            stream = await server.stream(f"/executions/{execution}/events")
            assert await stream.status() == 200
        status, headers, document = await answer_to(server.url, b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (status, document["code"]) == (429, "TOO_MANY_CONNECTIONS")
        assert headers["retry-after"] == "1"

    run(tmp_path, work, api_connections_per_address=4)


def test_event_streams_beyond_limit_of_key_are_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        path = f"/executions/{execution}/events"
        opened = [await server.stream(path), await server.stream("/events")]
        assert [await each.status() for each in opened] == [200, 200]
        rejected = [await server.http.get(API + each) for each in (path, "/events")]
        assert [(each.status_code, each.json()["code"]) for each in rejected] == [(429, "TOO_MANY_WATCH")] * 2
        opened[0].break_off()
        while await (await server.stream(path)).status() != 200:
            pass

    run(tmp_path, work, api_streams_per_key=2)


def test_event_streams_beyond_limit_of_server_are_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        execution = (await server.client.start("waits")).execution_id
        path = f"/executions/{execution}/events"
        assert await (await server.stream(path)).status() == 200
        address = server.url.replace("http", "ws") + API + path
        async with connect_socket(address) as socket:
            await socket.recv()
            rejected = await server.http.get(API + path)
            assert (rejected.status_code, rejected.json()["code"]) == (429, "TOO_MANY_WATCH")
            with pytest.raises(InvalidStatus) as refused:
                await connect_socket(address)
        answer = refused.value.response
        assert (answer.status_code, json.loads(answer.body)["code"]) == (429, "TOO_MANY_WATCH")

    run(tmp_path, work, api_streams=2)


def test_connection_beyond_limit_of_server_replaces_the_one_that_waits_longest(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        waiting = [await connect(server.url) for _ in range(6)]
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/healthz")).status_code == 200
        assert await waiting[0][0].read() == b""
        for _, writer in waiting:
            writer.close()

    run(tmp_path, work, api_connections=4)


class Attack:
    """Connections that misbehave until they are cancelled."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def repeat(self, data: bytes, *, hold: bool = False) -> None:
        """Send the same bytes over new connections; with `hold` keep up to 500 of them open."""
        held: deque[asyncio.StreamWriter] = deque()
        try:
            while True:
                with contextlib.suppress(OSError, TimeoutError):
                    reader, writer = await connect(self._url)
                    held.append(writer)
                    writer.write(data)
                    async with asyncio.timeout(0.01 if hold else 5):
                        await reader.read()
                while len(held) > (500 if hold else 0):
                    held.popleft().close()
        finally:
            for each in held:
                each.close()

    async def stream(self, path: str) -> None:
        """Follow events over more and more connections."""
        head = f"GET {path} HTTP/1.1\r\nauthorization: Bearer {KEY}\r\n".encode()
        await self.repeat(head + HOST + b"\r\n", hold=True)


@asynccontextmanager
async def attacked(*attacks: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in attacks]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@async_test
async def test_health_check_responds_within_a_second_during_attacks(tmp_path: Path) -> None:
    process = UpProcess(tmp_path, RUNE_API_KEY=KEY, RUNE_API_CONNECTIONS_PER_ADDRESS="400")
    url = await asyncio.to_thread(process.start, "--no-examples")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    try:
        hook, execution = await set_up(url)
        attack = Attack(url)
        form = b"&".join([b"a=1"] * 30_000)
        kind = b"content-type: application/x-www-form-urlencoded\r\n"
        length = b"content-length: %d\r\n\r\n" % len(form)
        post = b"POST " + hook.encode() + b" HTTP/1.1\r\n" + HOST + b"connection: close\r\n"
        async with attacked(
            attack.repeat(post + kind + length + form),
            attack.repeat(post + b"a: b\r\n" * 15_000 + b"\r\n"),
            attack.repeat(b"GET / HTTP/1.1\r\nx: ", hold=True),
            attack.repeat(b"", hold=True),
            attack.repeat(post + b"content-length: 1000\r\n\r\n{", hold=True),
            attack.stream(f"{API}/executions/{execution}/events"),
        ):
            slowest = await slowest_health_check(url, seconds=8.0)
        # The processes of other tests share the cores.
        share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert slowest < 1.0 * share
        status = await asyncio.to_thread(Path(f"/proc/{process.said['pid']}/status").read_text)
        peak = int(next(each for each in status.splitlines() if each.startswith("VmHWM")).split()[1])
        assert peak < 400_000  # KiB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await asyncio.to_thread(process.stop)


async def set_up(url: str) -> tuple[str, str]:
    """Deploy workflows; return the path of a webhook and a waiting execution."""
    hook = {
        "id": "hook",
        "nodes": [{"id": "in", "type": "webhook"}, *HELLO["nodes"][1:]],
        "edges": HELLO["edges"],
    }
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url + API, headers=headers, timeout=60) as http:
        for each in (hook, WAITS):
            answer = await http.put(f"/workflows/{each['id']}", json=each)
            assert answer.is_success, answer.text
        (trigger,) = (await http.get("/triggers")).json()["triggers"]
        started = await http.post("/workflows/waits/executions", json={})
        return trigger["webhook"]["path"], started.json()["execution_id"]


async def slowest_health_check(url: str, seconds: float) -> float:
    """Check the health over new connections; return the longest time."""
    slowest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            answer = await http.get("/healthz")
        assert answer.status_code == 200, answer.text
        slowest = max(slowest, time.monotonic() - begun)
    return slowest
