"""Runs nodes that use the network against servers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from rune.core.execution.outcome import Failure, Outcome
from rune.core.expr import Names
from rune.core.plan.model import compile_parameters
from rune.nodes.base import Resources
from rune.nodes.blobs import Blobs
from rune.nodes.registry import CallOptions, execute_async, prepare, standard_registry
from rune.testing.mocks import MemoryBlob

NOW = 1_700_000_000_000
KEY = "x1:call@/"
NAMES = Names(frozenset(), {})

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TcpHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def local_resources(**options: Any) -> Resources:
    """Resources whose HTTP client may call 127.0.0.1."""
    return Resources(**{"http_allow": ("127.0.0.1",), **options})


@contextlib.asynccontextmanager
async def open_resources(**options: Any) -> AsyncIterator[Resources]:
    resources = local_resources(**options)
    try:
        yield resources
    finally:
        await resources.close()


async def run_node(
    type: str,
    parameters: Mapping[str, Any],
    resources: Resources,
    *,
    key: str = KEY,
    store: MemoryBlob | None = None,
    progress: Callable[[float | str], None] | None = None,
) -> Outcome:
    """Run a node of the execution `x1` as the engine does."""
    kind = standard_registry()[type]
    problems = kind.type.check(parameters, lambda text: False)
    assert not problems, problems
    compiled = compile_parameters(kind.type, parameters, NAMES)
    options: CallOptions = {
        "idempotency_key": key,
        "resources": resources,
        "blobs": Blobs(store or MemoryBlob(), "x1"),
    }
    if progress is not None:
        options["progress"] = progress
    prepared = prepare(kind, compiled, {"$json": None}, now=NOW, **options)
    if isinstance(prepared, Failure):
        return prepared
    try:
        return await execute_async(kind, prepared)
    finally:
        if prepared.usage is not None:
            prepared.usage.close()


@contextlib.asynccontextmanager
async def http_server(
    handler: HttpHandler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve HTTP requests with `handler`; yields the port."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, host, 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def tcp_server(handler: TcpHandler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve TCP connections with `handler`; yields the port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(reader, writer)
        tasks.discard(task)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def send_request(handler: HttpHandler, path: str = "/", key: str = KEY, **parameters: Any) -> Outcome:
    """Run the `http` node against a server with `handler`."""

    async def scenario() -> Outcome:
        async with open_resources() as resources, http_server(handler) as port:
            url = f"http://127.0.0.1:{port}{path}"
            return await run_node("http", {"url": url, **parameters}, resources, key=key)

    return asyncio.run(scenario())


def respond_with(body: bytes | str = b"", status: int = 200, **headers: str) -> HttpHandler:
    """A handler with a fixed response."""
    fields = {"Content-Type": "text/plain"}
    fields |= {name.replace("_", "-"): text for name, text in headers.items()}

    async def handle(request: web.Request) -> web.Response:
        data = body.encode() if isinstance(body, str) else body
        return web.Response(body=data, status=status, headers=fields)

    return handle


async def echo(request: web.Request) -> web.Response:
    """A handler that returns the request as JSON."""
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): text for name, text in request.headers.items()},
            "body": await request.text(),
        }
    )


class ScriptedResolver:
    """A resolver that returns the given answers in order and repeats the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.hosts: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.hosts.append(host)
        return list(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


class RedirectingServer:
    """An HTTP server that sends the given redirects, then a response, and records its requests."""

    def __init__(self, *redirects: tuple[int, str]) -> None:
        self._redirects = list(redirects)
        self.port = self.other = 0  # two origins
        self.requests: list[tuple[str, str, dict[str, str], str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.requests.append((request.method, request.raw_path, headers, await request.text()))
        if not self._redirects:
            return web.Response(text="here")
        status, location = self._redirects.pop(0)
        where = location.replace("PORT", str(self.port)).replace("OTHER", str(self.other))
        return web.Response(status=status, headers={"Location": where})

    def send_request(self, resolve: ScriptedResolver | None = None, **parameters: Any) -> Outcome:
        """Run the `http` node against this server."""

        async def scenario() -> Outcome:
            async with (
                open_resources(resolve=resolve) as resources,
                http_server(self.handle) as self.port,
                http_server(self.handle) as self.other,
            ):
                url = f"http://127.0.0.1:{self.port}/"
                return await run_node("http", {"url": url, **parameters}, resources)

        return asyncio.run(scenario())


def put_blob(store: MemoryBlob, data: bytes, *about: str, execution: str = "x1") -> dict[str, Any]:
    """Store bytes as a blob of an execution; returns its reference."""
    return asyncio.run(Blobs(store, execution).put(data, *about))
