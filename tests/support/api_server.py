"""An API server with an embedded engine on a free port, in the process of the test."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from rune.bootstrap import open_reader, running_engine
from rune.bootstrap.http import serve
from rune.client import AsyncClient
from rune.server.context import ServerContext
from rune.settings import Settings

T = TypeVar("T")
DEADLINE = 60.0
API = "/api/v1"

HELLO: dict[str, Any] = {
    "id": "hello",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "out", "type": "output", "parameters": {"value": "Hello, {{ $trigger.name }}!"}},
    ],
    "edges": [{"src": "in", "dst": "out"}],
}
WAITS: dict[str, Any] = {
    "id": "waits",
    "nodes": [
        {"id": "in", "type": "input"},
        # An expression, so that signals of other names are stored instead of refused.
        {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "{{ 'go' }}"}},
        {"id": "out", "type": "output", "parameters": {"value": "{{ $w }}"}},
    ],
    "edges": [{"src": "in", "dst": "w"}, {"src": "w", "dst": "out"}],
}
ITEMS: dict[str, Any] = {
    "id": "items",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "odd", "type": "conditional", "parameters": {"expression": "$item % 2 == 1"}},
        {"id": "bad", "type": "fail", "parameters": {"message": "odd"}},
        {
            "id": "twice",
            "type": "edit",
            "parameters": {"mode": "keep_only", "assignments": [{"name": "v", "value": "{{ $item * 2 }}"}]},
        },
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [
        {"src": "in", "dst": "s"},
        {"src": "s", "dst": "odd"},
        {"src": "odd", "dst": "bad", "label": "true"},
        {"src": "odd", "dst": "twice", "label": "false"},
        {"src": "bad", "dst": "all"},
        {"src": "twice", "dst": "all"},
    ],
}


class RunningServer:
    """A running server and its clients."""

    def __init__(self, url: str, master: ServerContext, http: httpx.AsyncClient, client: AsyncClient) -> None:
        self.url = url
        self.master = master
        self.engine = master.engine
        self.http = http
        self.client = client
        self.streams: list[RawStream] = []

    async def stream(self, path: str, last: int | None = None, window: int = 0) -> RawStream:
        """Open an event stream; it is aborted when the server stops."""
        self.streams.append(await RawStream.open(self.url, path, last, window))
        return self.streams[-1]

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return await self.ask("GET", path, status, **options)

    async def post(self, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        return await self.ask("POST", path, status, json=body, **options)

    async def ask(self, method: str, path: str, status: int, **options: Any) -> Any:
        """Send a request, check the status and return the document of the response."""
        answer = await self.http.request(method, API + path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def deploy(self, *documents: dict[str, Any]) -> None:
        for each in documents:
            await self.client.deploy(each)

    async def ended(self, workflow: str, input: Any = None, **options: Any) -> str:
        """Start an execution, wait for its end and return its id."""
        started = await self.client.start(workflow, input, **options)
        await self.client.wait(started.execution_id, DEADLINE)
        return started.execution_id


@asynccontextmanager
async def running_server(
    folder: Path, *, key: str = "", on: Settings | None = None, working: bool = True, **settings: Any
) -> AsyncIterator[RunningServer]:
    """Run a server; `on` replaces all other settings. One that is not `working` leaves nodes to other engines."""
    given: dict[str, Any] = {"home": str(folder), "durability": "relaxed", **settings}
    made = Settings(**given) if on is None else on
    loop = asyncio.get_running_loop()
    stop, ready = loop.create_future(), loop.create_future()
    masters: list[ServerContext] = []
    async with running_engine(made, working=working) as engine, open_reader(made) as opened:
        serving = asyncio.create_task(
            serve(
                made,
                engine,
                opened,
                "127.0.0.1",
                0,
                key=key,
                stop=stop,
                ready=ready.set_result,
                on_context=masters.append,
            )
        )
        try:
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            url = ready.result()
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with (
                httpx.AsyncClient(base_url=url, timeout=DEADLINE, headers=headers, trust_env=False) as http,
                AsyncClient(url, key=key or None, timeout=DEADLINE) as client,
            ):
                server = RunningServer(url, masters[0], http, client)
                try:
                    yield server
                finally:
                    for each in server.streams:
                        each.break_off()
        finally:
            if not stop.done():
                stop.set_result(None)
            await serving


def run(folder: Path, work: Callable[[RunningServer], Awaitable[T]], **options: Any) -> T:
    """Start a server and run a function with it."""

    async def go() -> T:
        async with asyncio.timeout(DEADLINE * 2), running_server(folder, **options) as server:
            return await work(server)

    return asyncio.run(go())


@contextmanager
def in_thread(
    folder: Path, fill: Callable[[RunningServer], Awaitable[None]], **options: Any
) -> Iterator[str]:
    """Run a server in a separate thread and yield its URL."""
    up, down = threading.Event(), threading.Event()
    urls: list[str] = []

    async def go() -> None:
        async with running_server(folder, **options) as server:
            await fill(server)
            urls.append(server.url)
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: asyncio.run(go()))
    thread.start()
    try:
        assert up.wait(DEADLINE * 2)
        yield urls[0]
    finally:
        down.set()
        thread.join()


class RawStream:
    """An event stream over a plain connection, which can be aborted at any byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str, path: str, last: int | None = None, window: int = 0) -> RawStream:
        host, port = url.removeprefix("http://").split(":")
        opened = socket.socket()
        if window:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=opened, limit=2**22)
        resume = f"last-event-id: {last}\r\n" if last is not None else ""
        writer.write(
            f"GET {API}{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{resume}\r\n".encode()
        )
        return cls(reader, writer)

    async def status(self) -> int:
        return int((await self._reader.readuntil(b"\r\n\r\n"))[9:12])

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield events until the connection is closed."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def break_off(self) -> None:
        """Reset the connection, as a killed client does."""
        if self._writer.is_closing():
            return
        plain = self._writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
