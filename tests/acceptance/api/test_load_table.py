"""The load table: whatever is asked of a server, it goes on answering.

Each row sends the largest and the oddest input that the limits allow to one route, node type or importer, while
`/healthz` is asked every 50 ms. No answer of it may take more than a second of the server's CPU longer than without the
row, the event loop may be busy for less than a second at a time, and memory is bounded. In part the executions have
5,000 items, with RUNE_WHOLE=1 100,000.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rune.adapters.sqlite.owner import address, receive, socket_of
from rune.codec.rpc import (
    HEADER,
    MAX_VALUE_BYTES,
    VERSION,
    ErrorReply,
    InvalidRequestError,
    RpcMethods,
    read_reply,
)
from rune.documents.importers.draft import FORMATS
from rune.errors import RuneError
from rune.nodes.registry import STANDARD
from rune.runtime.components import RPC_METHODS, Services
from rune.server.app import make_app
from rune.server.routing import rows
from rune.settings import Settings
from rune.testing.harness import compiled
from tests.support.api_server import RunningServer
from tests.support.api_server import run as run_server
from tests.support.hostile_rows import deployed, hostile_rows
from tests.support.large_executions import WIDE, write_items, write_open_items
from tests.support.load_rows import (
    DEPLOYED,
    Loaded,
    Row,
    Sent,
    abandoned_rows,
    decoders,
    hidden_rows,
    importer_rows,
    message_bodies,
    node_rows,
    owner_rows,
    route_rows,
    running_rows,
)
from tests.support.loop_meter import MeteredServer
from tests.support.number_rows import NUMBERS, number_rows, numbered
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

ITEMS = 100_000 if WHOLE else 5_000
ELEMENTS = 10_000 if WHOLE else 2_000
MAX_BUSY_S = 1.0 if WHOLE else 0.5
MAX_LAG_S = 1.0
MAX_GROWTH_MB = 700
PERIOD_S = 0.05
STREAM_S = 0.3
STREAMS = ("/events", "/api/v1/events")
DEADLINE_S = 120.0
REFUSED = 413


LOADED = Loaded(("x1", "x2"), "h", ITEMS, "x3", "x4")


async def measure(asked: Iterable[Row], server: MeteredServer) -> list[str]:
    """Send the requests of all rows; return what was found, one line each."""
    found: list[str] = []
    fresh = httpx.Limits(
        max_keepalive_connections=0
    )  # a connection that was closed with a body is not asked again
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, trust_env=False, limits=fresh) as health,
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, trust_env=False, limits=fresh) as http,
    ):
        usual = await _lag(health, server)
        before = server.take().peak_mb
        for row in asked:
            for sent in row.requests:
                shown = f"{row.kind} {row.name} {sent.path[-80:]} {(sent.body or b'')[:24]!r}"
                statuses: list[int] = []
                async with _polled(health, server) as lags:
                    began = time.monotonic()
                    statuses += await asyncio.gather(*(_sent(http, sent, server) for _ in range(sent.times)))
                    took = time.monotonic() - began
                measured = await asyncio.to_thread(server.take)
                lag = max(lags, default=0.0) - usual
                if max(statuses) >= 500 and max(statuses) != 503:
                    found.append(f"{shown}: answered {max(statuses)}")
                if measured.longest_s > MAX_BUSY_S or lag > MAX_LAG_S:
                    found.append(
                        f"{shown}: loop busy for {measured.longest_s:.2f} s, /healthz {lag:.2f} s later, "
                        f"answered {statuses[0]} after {took:.1f} s\n{measured.stack}"
                    )
                if measured.peak_mb - before > MAX_GROWTH_MB:
                    found.append(f"{shown}: {measured.peak_mb - before} MB")
    return found


async def _lag(http: httpx.AsyncClient, server: MeteredServer) -> float:
    """Ask for the health once; return how long the answer took, at most the CPU time that the server used meanwhile:
    what else the machine does is not counted."""
    cpu, began = server.cpu_s(), time.monotonic()
    assert (await http.get("/healthz")).status_code == 200
    return min(time.monotonic() - began, server.cpu_s() - cpu)


@asynccontextmanager
async def _polled(http: httpx.AsyncClient, server: MeteredServer) -> AsyncIterator[list[float]]:
    lags: list[float] = []

    async def poll() -> None:
        while True:
            lags.append(await _lag(http, server))
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await asyncio.Event().wait()

    task = asyncio.create_task(poll())
    try:
        yield lags
        lags.append(await _lag(http, server))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _sent(http: httpx.AsyncClient, sent: Sent, server: MeteredServer) -> int:
    """Send a request; return the status of the answer."""
    if sent.method == "WebSocket":
        return await _follow(server.url.replace("http", "ws") + sent.path, sent.body)
    if sent.method == "ABANDON":
        return await _abandon(server.url, sent.path)
    if sent.method == "CALL":
        return await _call(server.home, sent.body or b"")
    return await _send(http, sent)


async def _follow(url: str, body: bytes | None) -> int:
    """Read what a WebSocket sends for a moment, after it was sent a body."""
    try:
        async with connect(url, max_size=None, proxy=None) as socket:
            with suppress(TimeoutError, ConnectionClosed):
                if body is not None:
                    await socket.send(body)
                async with asyncio.timeout(STREAM_S):
                    async for _ in socket:
                        pass
    except InvalidStatus as refused:
        return refused.response.status_code
    return 200


async def _abandon(url: str, path: str) -> int:
    """Send a request and disconnect; there is no answer."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, (host, int(port)))
        await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return 0


async def _call(home: pathlib.Path, body: bytes) -> int:
    """Send a frame to the owner of the file; return 500 if the answer is that it failed."""
    with address(socket_of(Settings(home=str(home)).database)) as name:
        reader, writer = await asyncio.open_unix_connection(name)
    try:
        writer.write(HEADER.pack(VERSION, len(body)) + body)
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionError):
                await writer.drain()
            answered = await receive(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        return REFUSED
    finally:
        writer.close()
    found = read_reply(answered or b"")
    return 500 if isinstance(found, ErrorReply) and found.code == "INTERNAL" else 200


async def _send(http: httpx.AsyncClient, sent: Sent) -> int:
    headers = dict(sent.headers)
    if sent.body is not None:
        headers["content-type"] = sent.media
    if sent.method == "GET" and sent.path.partition("?")[0].endswith(STREAMS):
        async with http.stream("GET", sent.path) as stream:
            try:
                async with asyncio.timeout(STREAM_S):
                    async for _ in stream.aiter_bytes():
                        pass
            except TimeoutError:
                pass
            return stream.status_code
    try:
        answer = await http.request(sent.method, sent.path, content=sent.body, headers=headers)
    except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
        return REFUSED  # the server closes a connection whose body it does not read
    return answer.status_code


async def prepared(server: MeteredServer, executions: tuple[str, str], open: str) -> Loaded:
    """Deploy the workflows of the table and run one with a large output."""
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, trust_env=False) as http:
        for each in (*DEPLOYED, *deployed(), *numbered()):
            answer = await http.put(f"/api/v1/workflows/{each['id']}", json=each)
            assert answer.status_code in (200, 201), answer.text
        rows = [{"n": at, "text": "some words of a row"} for at in range(20_000)]
        started = await http.post(
            "/api/v1/workflows/large/executions?wait=60", json={"input": {"items": rows}}
        )
        assert started.status_code == 202, started.text
        large = started.json()["execution"]
        assert large["status"] == "completed", large
    return Loaded(executions, compiled(WIDE).hash, ITEMS, large["execution_id"], open)


PARTS: dict[str, Callable[[Loaded], Iterable[Row]]] = {
    "routes": lambda loaded: [*route_rows(loaded), *hidden_rows(loaded)],
    "running executions": running_rows,
    "abandoned requests": abandoned_rows,
    "calls of the owner": owner_rows,
    "schemas and patterns": hostile_rows,
    "numbers": number_rows,
    "node types and importers": lambda loaded: [*node_rows(ELEMENTS), *importer_rows(FORMATS)],
}


@pytest.mark.parametrize("part", PARTS)
def test_server_answers_whatever_is_asked_of_it(tmp_path: pathlib.Path, part: str) -> None:
    executions = (write_items(tmp_path, ITEMS), write_items(tmp_path, ITEMS, failed_every=100))

    open = write_open_items(tmp_path, ITEMS) if part in ("routes", "running executions") else ""

    async def run(server: MeteredServer) -> list[str]:
        return await measure(PARTS[part](await prepared(server, executions, open)), server)

    with MeteredServer(tmp_path) as server:
        found = asyncio.run(run(server))

    assert found == [], "\n".join(found)


def test_server_answers_when_it_starts_with_numbers_of_any_form(tmp_path: pathlib.Path) -> None:
    executions = (write_items(tmp_path, 1), write_items(tmp_path, 1))

    async def send(server: MeteredServer) -> list[str]:
        rows = number_rows(await prepared(server, executions, ""))
        return await measure((row for row in rows if row.name == NUMBERS[0]), server)

    async def ask(server: MeteredServer) -> list[str]:
        return await measure([Row("restart", "numbers", (Sent("GET", "/api/v1/executions"),))], server)

    with MeteredServer(tmp_path) as server:
        asyncio.run(send(server))
    with MeteredServer(tmp_path) as server:
        found = asyncio.run(ask(server))

    assert found == [], "\n".join(found)


def test_every_route_of_the_server_has_a_row(tmp_path: pathlib.Path) -> None:
    async def work(server: RunningServer) -> None:
        served = {
            f"{method} {path.replace(':path}', '}')}"
            for method, path, _ in rows(make_app(server.master).router.routes)
        }
        assert {row.name for row in (*route_rows(LOADED), *hidden_rows(LOADED))} == served

    run_server(tmp_path, work)


def test_every_call_node_type_and_importer_has_a_row() -> None:
    assert {row.name for row in owner_rows(LOADED)} == {*RPC_METHODS, "no call"}
    assert {row.name for row in node_rows(1)} == {each.name for each in STANDARD}
    assert {row.name for row in importer_rows(FORMATS)} == set(FORMATS)


def test_call_whose_values_are_too_large_is_refused_with_the_limit() -> None:
    method = RpcMethods(Services, RPC_METHODS)["credentials.add"]
    given = {"name": "c", "type": "bearer", "values": {"token": "x" * MAX_VALUE_BYTES}}

    with pytest.raises(InvalidRequestError, match=f"at most {MAX_VALUE_BYTES:,} are allowed"):
        method.arguments(method.request(given))


@pytest.mark.parametrize("name", decoders())
def test_message_of_any_content_is_decoded_or_refused_at_once(name: str) -> None:
    decode = decoders()[name]

    for kind, body in message_bodies(1_000_000).items():
        began = time.thread_time()
        with suppress(RuneError):
            decode(body)
        assert time.thread_time() - began < MAX_BUSY_S, kind
