"""Transports to an ASGI application in this process, without a socket."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx


def async_transport(app: Any) -> httpx.AsyncBaseTransport:
    """Return a transport of an asynchronous client; the application runs in the loop of the caller."""
    return httpx.ASGITransport(app)


def sync_transport(app: Any) -> httpx.BaseTransport:
    """Return a transport of a synchronous client; the application runs in a loop in a thread of its own."""
    return ThreadTransport(app)


class ThreadTransport(httpx.BaseTransport):
    """Sends requests to an application in another thread. A response is complete when it is returned."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="rune-client", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(send(self._transport, request), self._loop).result()

    def close(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None


async def send(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    """Send a request of a synchronous client through an asynchronous transport."""
    sent = httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        content=request.read(),
        extensions=request.extensions,
    )
    response = await transport.handle_async_request(sent)
    return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())
