"""The stub servers of a case: an HTTP server with fixed routes, and a mail sink."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from tests.acceptance.conformance.case import Case, expand
from tests.acceptance.conformance.expectations import Calls, Mail
from tests.support.services.listening import listening


class HttpStub:
    """Responds by the routes of a case and counts the calls per path."""

    def __init__(self, routes: Sequence[Mapping[str, Any]]) -> None:
        self._routes = [dict(route) for route in routes]
        self._remaining = [route.get("times") for route in self._routes]
        self._open: dict[str, int] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self.calls: dict[str, Calls] = {}

    async def respond(self, request: web.Request) -> web.Response:
        path = request.path
        self._open[path] = self._open.get(path, 0) + 1
        before = self.calls.get(path, Calls())
        self.calls[path] = Calls(before.count + 1, max(before.max_concurrent, self._open[path]))
        try:
            return await self._respond(request)
        finally:
            self._open[path] -= 1

    async def _respond(self, request: web.Request) -> web.Response:
        route = self._route(request.method, request.path)
        body = await request.text()
        if route is None:
            return web.Response(status=404)
        await _delay(route.get("delay_ms", 0) / 1000)
        if route.get("held"):
            await self._gate(request.path).wait()
        headers = {name: str(value) for name, value in route.get("headers", {}).items()}
        status = route.get("status", 200)
        if "text" in route:
            return web.Response(status=status, text=route["text"], headers=headers)
        value = _echo(request, body) if route.get("echo") else route.get("json")
        return web.json_response(value, status=status, headers=headers)

    def _gate(self, path: str) -> asyncio.Event:
        return self._gates.setdefault(path, asyncio.Event())

    def release(self, path: str) -> None:
        """Respond to the held calls of this path and to all later ones."""
        self._gate(path).set()

    def _route(self, method: str, path: str) -> Mapping[str, Any] | None:
        for index, route in enumerate(self._routes):
            if (route.get("method", "GET"), route["path"]) != (method, path):
                continue
            remaining = self._remaining[index]
            if remaining is None:
                return route
            if remaining > 0:
                self._remaining[index] = remaining - 1
                return route
        return None


async def _delay(seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def _echo(request: web.Request, body: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = body
    headers = {name.lower(): text for name, text in request.headers.items()}
    return {"method": request.method, "query": dict(request.query), "headers": headers, "body": value}


class MailSink:
    """A mail server that accepts and stores every mail."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recipients: list[str] = []
        writer.write(b"220 sink\r\n")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode("utf-8", "replace").strip():
                verb = line.upper().partition(" ")[0]
                if verb == "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                if verb == "DATA":
                    writer.write(b"354 go on\r\n")
                    raw = (await reader.readuntil(b"\r\n.\r\n")).removesuffix(b".\r\n")
                    text = raw.replace(b"\r\n..", b"\r\n.").decode("utf-8", "replace")
                    self.mails.append(Mail(tuple(recipients), text))
                    recipients = []
                writer.write(b"221 bye\r\n" if verb == "QUIT" else b"250 ok\r\n")
                if verb == "QUIT":
                    break
            await writer.drain()
        writer.close()


class StubServers:
    """The servers of one case."""

    def __init__(self, case: Case) -> None:
        self.http = HttpStub(expand(list(case.http)))
        self.sink = MailSink()
        self.base_url = ""
        self.smtp_url = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def release(self, path: str) -> None:
        """Respond to the held calls of a path. Thread-safe."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.http.release, path)

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = web.Server(self.http.respond)  # type: ignore[arg-type]
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with listening(self.sink.serve) as port:
            self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self.smtp_url = f"smtp://127.0.0.1:{port}"
            ready.set()
            await stop.wait()
        await runner.cleanup()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:  # handlers whose clients have gone
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def stub_servers(case: Case) -> Iterator[StubServers]:
    """Run the servers of a case in a separate thread, since the command has its own event loop."""
    servers = StubServers(case)
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    def run() -> None:
        loop.run_until_complete(servers.serve(ready, stop))
        # A connection that was accepted during the shutdown belongs to no server. It is closed here; its transport
        # closes the socket in the next iterations of the loop.
        for _ in range(3):
            loop.run_until_complete(loop.shutdown_asyncgens())
            for transport in list(getattr(loop, "_transports", {}).values()):
                transport.abort()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10), "the servers did not start"
        yield servers
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
