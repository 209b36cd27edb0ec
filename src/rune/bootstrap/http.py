"""Answering: an application on a port while a block runs.

Serving: the API of a running engine on a port, until somebody wants it to stop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from rune.errors import RuneError
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.server.app import make_app
from rune.server.auth import ApiKeyAuth, cached_keys
from rune.server.context import ServerContext
from rune.server.monitoring import HealthState, health_app
from rune.settings import Settings

SHUTDOWN_S = 5  # s that open requests get


class ServerStartError(RuneError):
    """An address that is not served."""

    code = "NOT_SERVED"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; on port 0 a free one is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because the standard loop asks for it before it lets small answers go out at once.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise ServerStartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    opened.setblocking(False)
    return opened


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it, and lets go of watchers before it waits for requests."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], None]) -> None:
        super().__init__(config)
        self._leave = leave
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()
        await super().shutdown(sockets)


@asynccontextmanager
async def serve_api(
    app: Any, host: str, port: int, leave: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """The address at which an application answers, and the task that does it; `leave` is called before it goes."""
    opened = listen(host, port)
    server = _Server(_config(app), leave)
    serving = asyncio.create_task(server.serve(sockets=[opened]))
    try:
        await _until_started(server, serving)
        yield _address(opened), serving
    finally:
        server.should_exit = True
        await serving
        opened.close()


@asynccontextmanager
async def serve_health(settings: Settings) -> AsyncIterator[HealthState]:
    """How this process is, on a port of its own where the settings name one."""
    vitals = HealthState()
    if not settings.health_port:
        yield vitals
        return
    async with serve_api(health_app(vitals), settings.health_host, settings.health_port):
        yield vitals


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ws_max_size=64 * 1024,
        h11_max_incomplete_event_size=64 * 1024,
    )


async def _until_started(server: _Server, serving: asyncio.Task[None]) -> None:
    answers = asyncio.create_task(server.answers.wait())
    await asyncio.wait({answers, serving}, return_when=asyncio.FIRST_COMPLETED)
    answers.cancel()


def _address(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_address(host: str, *, locked: bool) -> None:
    """Without a key only this machine may ask."""
    if not locked and not is_loopback(host):
        raise ServerStartError(
            f"{host} can be reached from elsewhere and there is no key: set RUNE_API_KEY, make one with"
            " `rune keys create`, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(
    settings: Settings,
    engine: Engine,
    reader: ExecutionReader,
    host: str,
    port: int,
    *,
    key: str = "",
    stop: asyncio.Future[None] | None = None,
    ready: Callable[[str], None] | None = None,
    made: Callable[[ServerContext], None] | None = None,
) -> None:
    """Serve until `stop` is done. `ready` is told the address once requests are answered; `made` is shown the master
    before."""
    keys = cached_keys(engine.backend)
    locked = bool(key) or await keys.exist()
    check_address(host, locked=locked)
    master = ServerContext(engine, reader, slots=settings.slots)
    if made is not None:
        made(master)
    app = make_app(master, ApiKeyAuth(key, keys, loopback=is_loopback(host)))
    async with master.running(), serve_api(app, host, port, master.stop) as (url, serving):
        if ready is not None:
            ready(url)
        await asyncio.wait({serving, *(() if stop is None else (stop,))}, return_when=asyncio.FIRST_COMPLETED)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fastest loop that is there; None: the usual one."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra that need not be there

    return uvloop.new_event_loop
