"""A client of an API server around an engine of a test, without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import httpx

from rune.bootstrap import open_reader
from rune.build.local import embedded_settings
from rune.client import Client
from rune.client.transport import send
from rune.server.app import make_app
from rune.server.context import ServerContext
from rune.testing.engine import EmbeddedEngine


class LoopTransport(httpx.BaseTransport):
    """Sends the requests of a synchronous client to an ASGI application in the event loop of an engine."""

    def __init__(self, engine: EmbeddedEngine, app: Any) -> None:
        self._engine = engine
        self._transport = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._engine.call(send(self._transport, request))


@contextmanager
def client_of(engine: EmbeddedEngine) -> Iterator[Client]:
    """Give a client whose requests a server around the engine answers."""
    stack = AsyncExitStack()

    async def serve() -> Any:
        settings = embedded_settings(str(engine.folder))
        found = engine.harness.engine
        reader = await stack.enter_async_context(open_reader(settings, found.registry.catalogue))
        context = ServerContext(found, reader)
        await stack.enter_async_context(context.running())
        return make_app(context)

    app = engine.call(serve())
    try:
        with Client("http://localhost", transport=LoopTransport(engine, app)) as client:
            yield client
    finally:
        engine.call(stack.aclose())
