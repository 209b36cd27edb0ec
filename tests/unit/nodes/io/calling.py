"""Runs a node that calls the world, against servers of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from rune.core.execution.outcome import Failure, Outcome
from rune.core.expr import Names
from rune.core.plan.parameters import compile_parameters
from rune.nodes.blobs import Blobs
from rune.nodes.registry import CallOptions, execute_async, prepare, standard_registry
from rune.nodes.resources import Resources
from rune.testing.nodes import MemoryBlob

NOW = 1_700_000_000_000
KEY = "x1:call@/"
NAMES = Names(frozenset(), {})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def local_world(**options: Any) -> Resources:
    """A world in which this machine may be called."""
    return Resources(**{"http_allow": ("127.0.0.1",), **options})


async def call(
    type: str,
    parameters: Mapping[str, Any],
    world: Resources,
    *,
    key: str = KEY,
    store: MemoryBlob | None = None,
    told: Callable[[float | str], None] | None = None,
) -> Outcome:
    """The outcome of one run of the execution `x1`, as the engine would run it."""
    kind = standard_registry()[type]
    problems = kind.type.check(parameters, lambda text: False)
    assert not problems, problems
    compiled = compile_parameters(kind.type, parameters, NAMES)
    facts: CallOptions = {
        "idempotency_key": key,
        "resources": world,
        "blobs": Blobs(store or MemoryBlob(), "x1"),
    }
    if told is not None:
        facts["progress"] = told
    prepared = prepare(kind, compiled, {"$json": None}, now=NOW, **facts)
    if isinstance(prepared, Failure):
        return prepared
    try:
        return await execute_async(kind, prepared)
    finally:
        if prepared.usage is not None:
            prepared.usage.close()


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """The port of a web server that answers with `handler`."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, host, 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def listening(talk: Raw, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that says whatever `talk` writes."""
    tasks: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(reader, writer)
        tasks.discard(task)
        writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
