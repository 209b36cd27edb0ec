"""How the clients reach a server: its default address, a transport without a socket, and server-sent events."""

from __future__ import annotations

import asyncio
import os
import threading
from ipaddress import ip_address
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from rune.client.models import Event, ListedExecution, Missed, Now, Rollup
from rune.errors import RuneError

LOCAL_URL = "http://127.0.0.1:8080"

_EVENTS = msgspec.json.Decoder(Event)
_OTHERS: dict[str, msgspec.json.Decoder[Now] | msgspec.json.Decoder[Rollup]] = {
    "now": msgspec.json.Decoder(Now),
    "rollup": msgspec.json.Decoder(Rollup),
}
_CHANGES = msgspec.json.Decoder(ListedExecution)
T = TypeVar("T")


class ServerKeyError(RuneError):
    """There is a key, and it must not be sent to this server."""

    code = "KEY_NOT_SENT"


def default_server(url: str | None, key: str | None, *, local: bool) -> tuple[str, str | None]:
    """Return URL and key: those given, else those of RUNE_URL and RUNE_API_KEY.

    The key of the environment is used only for the server of the environment: it must not be sent to another one, nor
    to another machine without encryption. `local`: the client calls an application in this process.
    """
    named = "" if local else os.environ.get("RUNE_URL", "")
    address = url or named or ("http://localhost" if local else LOCAL_URL)
    if key is None and address == named:
        key = os.environ.get("RUNE_API_KEY") or None
        if key is not None:
            require_encryption(address, "RUNE_API_KEY")
    return address, key


def require_encryption(url: str, source: str) -> None:
    """Raise ServerKeyError if the key of `source` would be sent to another machine over plain HTTP."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise ServerKeyError(
            f"the key of {source} is not sent to {url}, because the connection is not encrypted: use https://, or a"
            " tunnel to an address of this machine"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


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
    # The bytes as sent: the new response decodes them by its headers.
    content = b"".join([each async for each in response.aiter_raw()])
    return httpx.Response(response.status_code, headers=response.headers, content=content)


class SseDecoder(Generic[T]):
    """Turns the lines of a stream into what its subclass makes of each event."""

    ended = False  # whether nothing further will be sent

    def __init__(self) -> None:
        self._data: list[str] = []
        self._kind = ""

    def take(self, line: str) -> T | None:
        """Consume a line. Return what it completes."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "event":
                self._kind = value.strip()
            return None
        data, kind = "\n".join(self._data), self._kind
        self._data, self._kind = [], ""
        return self.decode(kind or "message", data) if data else None

    def decode(self, kind: str, data: str) -> T | None:
        """Return what an event is; None if it is not returned."""
        raise NotImplementedError

    def opened(self) -> T | None:
        """Begin a response. Return what comes before its first event."""
        self._data, self._kind = [], ""  # of an event that the previous response left incomplete
        return None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that continues after the last event."""
        return {"Accept": "text/event-stream"}


class EventDecoder(SseDecoder[Event | Now | Rollup]):
    """The events of one execution, without duplicates. `last` is the number of the last event returned."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.last = after

    def decode(self, kind: str, data: str) -> Event | Now | Rollup | None:
        if kind in _OTHERS:
            return _OTHERS[kind].decode(data)
        if kind != "message":
            return None
        event = _EVENTS.decode(data)
        if event.number <= self.last:
            return None
        self.last = event.number
        self.ended = self.ended or event.ends
        return event

    @property
    def headers(self) -> dict[str, str]:
        return {**super().headers, **({"Last-Event-ID": str(self.last)} if self.last else {})}


class ChangeDecoder(SseDecoder[ListedExecution | Missed]):
    """The changes of all executions. What happens between two responses is missed."""

    _again = False

    def decode(self, kind: str, data: str) -> ListedExecution | Missed | None:
        if kind == "missed":
            return Missed()
        return _CHANGES.decode(data) if kind == "execution" else None

    def opened(self) -> ListedExecution | Missed | None:
        super().opened()
        again, self._again = self._again, True
        return Missed() if again else None
