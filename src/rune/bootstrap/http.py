"""Serve the API of an engine, or the health endpoints of a process, over HTTP; or answer requests in this process,
without a server, over the stores that the settings name.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import ipaddress
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from rune.bootstrap import open_engine, open_reader
from rune.bootstrap.doctor import check_installation
from rune.errors import RuneError
from rune.runtime.components import LocalServices
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.server.acceptor import ABANDONED_PER_S, AbandonedRequests, Acceptor, Address
from rune.server.app import make_app
from rune.server.auth import ApiKeyAuth, FailedLogins, cached_keys, cached_sessions
from rune.server.connections import BoundedSocketProtocol, ConnectionLimits, bounded_protocol
from rune.server.context import ServerContext
from rune.server.health import HealthState, health_app
from rune.server.live.feed import StreamLimits
from rune.settings import Settings, describe_settings

RESERVED_FILES = 256  # for stores, logs and calls of nodes
BACKLOG = 2048  # connections that wait to be accepted
SHUTDOWN_S = 5  # for open requests to finish
MIN_KEY_LENGTH = 24  # of the bootstrap key of a server that other machines can reach
EXAMPLE_KEY = "change-me"  # as in the files of deploy/


class ServerStartError(RuneError):
    """The server cannot bind to the address."""

    code = "NOT_SERVED"


SERVER_PORT, HEALTH_PORT = "--port or RUNE_PORT", "--health-port or RUNE_HEALTH_PORT"


def bind(host: str, port: int, setting: str = SERVER_PORT) -> socket.socket:
    """Open a socket that does not listen yet; port 0 chooses a free port. `setting` says how another port is chosen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY, which small responses need, only if the socket names its protocol.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _reporting_address(opened, host, port, setting):
        opened.bind((host, port))
    opened.setblocking(False)
    return opened


@contextmanager
def _reporting_address(opened: socket.socket, host: str, port: int, setting: str) -> Iterator[None]:
    """Close the socket and raise ServerStartError if its address cannot be used."""
    try:
        yield
    except OSError as error:
        opened.close()
        taken = (
            f"; stop that process, or choose another port with {setting}"
            if error.errno == errno.EADDRINUSE
            else ""
        )
        raise ServerStartError(f"cannot listen on {host}:{port}: {error.strerror or error}{taken}") from None


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers that accepts connections in small batches, and ends live streams before
    it waits for open requests."""

    def __init__(self, config: uvicorn.Config, before_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._before_shutdown = before_shutdown
        self._acceptors: list[Acceptor] = []
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        abandoned = AbandonedRequests(ABANDONED_PER_S, time.monotonic)

        def protocol(address: Address) -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                address=address,
                abandoned=abandoned,
            )
            return made

        self._acceptors = [Acceptor(each, protocol, abandoned) for each in sockets or ()]
        for each in self._acceptors:
            each.start()
        self.answers.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._acceptors:
            each.close()
        self._before_shutdown()
        await super().shutdown(sockets)


@asynccontextmanager
async def serve_api(
    app: Any,
    host: str,
    port: int,
    before_shutdown: Callable[[], None] = lambda: None,
    limits: ConnectionLimits | None = None,
    bound: socket.socket | None = None,
    setting: str = SERVER_PORT,
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """Serve an application while the block runs; yield its URL and the server task.

    `before_shutdown` is called before the shutdown waits for open requests. `bound`: a socket that is bound already.
    """
    opened = bind(host, port, setting) if bound is None else bound
    with _reporting_address(opened, host, port, setting):
        opened.listen(BACKLOG)
    server = _Server(_config(app, limits or ConnectionLimits()), before_shutdown)
    serving = asyncio.create_task(server.serve(sockets=[opened]))
    try:
        await _wait_until_started(server, serving)
        yield _address(opened), serving
    finally:
        server.should_exit = True
        await serving
        opened.close()


@asynccontextmanager
async def serve_health(settings: Settings) -> AsyncIterator[HealthState]:
    """Serve the health of this process while the block runs, if the settings name a port."""
    health = HealthState()
    if not settings.health_port:
        yield health
        return
    app, host, port = health_app(health), settings.health_host, settings.health_port
    async with serve_api(app, host, port, setting=HEALTH_PORT):
        yield health


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits that the settings name. The number of connections is at most that of files the process may
    open, after raising it as far as permitted; without a free one, the server could accept no connection at all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.api_connections + RESERVED_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return ConnectionLimits(
        head_bytes=settings.api_head_bytes,
        headers=settings.api_headers,
        url_bytes=settings.api_url_bytes,
        head_timeout=settings.api_head_timeout,
        body_rate=settings.api_body_rate,
        connections=max(1, min(settings.api_connections, soft - RESERVED_FILES)),
        connections_per_address=settings.api_connections_per_address,
        proxies=settings.trusted_proxies,
    )


def _config(app: Any, limits: ConnectionLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits),
        ws=BoundedSocketProtocol,
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(limits.proxies),
        forwarded_allow_ips=list(limits.proxies),
        date_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ws_max_size=64 * 1024,
    )


async def _wait_until_started(server: _Server, serving: asyncio.Task[None]) -> None:
    answers = asyncio.create_task(server.answers.wait())
    await asyncio.wait({answers, serving}, return_when=asyncio.FIRST_COMPLETED)
    answers.cancel()


def _address(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_address(host: str, *, key: str, locked: bool) -> None:
    """Raise if the address is not loopback and there is no API key, or if its bootstrap key can be guessed."""
    if is_loopback(host):
        return
    if not locked:
        raise ServerStartError(
            f"{host} is reachable from other machines and there is no API key: set RUNE_API_KEY, create a key with"
            " `rune keys create`, or bind to 127.0.0.1"
        )
    if key and (len(key) < MIN_KEY_LENGTH or EXAMPLE_KEY in key.lower()):
        found = "is an example" if EXAMPLE_KEY in key.lower() else f"has {len(key)} characters"
        raise ServerStartError(
            f"{host} is reachable from other machines and RUNE_API_KEY {found}: set a random key of at least"
            f" {MIN_KEY_LENGTH} characters, for example the output of `openssl rand -hex 32`, or bind to 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
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
    on_context: Callable[[ServerContext], None] | None = None,
    bound: socket.socket | None = None,
) -> None:
    """Serve the API until `stop` is done; raise if a background task of the engine fails.

    `on_context` is called with the server context before the start, `ready` with the URL when the server accepts
    requests.
    """
    keys = cached_keys(engine.backend)
    locked = bool(key) or await keys.exist()
    check_address(host, key=key, locked=locked)
    context = ServerContext(
        engine,
        reader,
        slots=settings.slots,
        streams=StreamLimits(settings.api_streams, settings.api_streams_per_key),
        settings=describe_settings(settings),
        checks=lambda: check_installation(settings),
    )
    if on_context is not None:
        on_context(context)
    sessions = cached_sessions(engine.backend)
    failed_logins = FailedLogins(settings.api_failed_logins)
    gate = ApiKeyAuth(key, keys, sessions, loopback=is_loopback(host), failed_logins=failed_logins)
    app = make_app(context, gate)
    limits = connection_limits(settings)
    async with context.running(), serve_api(app, host, port, context.stop, limits, bound) as (url, serving):
        if ready is not None:
            ready(url)
        ends: set[asyncio.Future[Any]] = {serving, engine.broken, *(() if stop is None else (stop,))}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        engine.raise_if_broken()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop if it is installed; None for the standard event loop."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra

    return uvloop.new_event_loop


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[tuple[Any, LocalServices]]:
    """Open the application, which reads the stores, and the services that it sends changes to: those of the owner
    process if there is one."""
    async with (
        open_engine(settings) as (engine, services),
        open_reader(settings, engine.plans.catalogue) as reader,
    ):
        context = ServerContext(
            engine,
            reader,
            slots=settings.slots,
            settings=describe_settings(settings),
            checks=lambda: check_installation(settings),
            services=services,
        )
        yield make_app(context), services
