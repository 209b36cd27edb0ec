"""Serving: the API of a running engine on a port, until somebody wants it to stop."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from rune.errors import RuneError
from rune.master.app import make_app
from rune.master.gate import KeyGate, LoopbackGate
from rune.master.service import Master
from rune.runtime.engine import Engine
from rune.runtime.reader import Reader
from rune.settings import Settings

CLOSING = 5  # s that open requests get


class NotServed(RuneError):
    """An address that is not served."""

    code = "NOT_SERVED"


def check_address(host: str, key: str) -> None:
    """Without a key only this machine may ask."""
    if not key and not is_loopback(host):
        raise NotServed(
            f"{host} can be reached from elsewhere and there is no key: set RUNE_API_KEY, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; on port 0 a free one is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise NotServed(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    opened.setblocking(False)
    return opened


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it, and lets go of watchers before it waits for requests."""

    def __init__(self, config: uvicorn.Config, master: Master) -> None:
        super().__init__(config)
        self._master = master
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._master.stop()
        await super().shutdown(sockets)


async def serve(
    settings: Settings,
    engine: Engine,
    reader: Reader,
    host: str,
    port: int,
    *,
    key: str = "",
    stop: asyncio.Future[None] | None = None,
    ready: Callable[[str], None] | None = None,
    made: Callable[[Master], None] | None = None,
) -> None:
    """Serve until `stop` is done. `ready` is told the address once requests are answered; `made` is shown the master
    before."""
    check_address(host, key)
    master = Master(engine, reader, slots=settings.slots)
    if made is not None:
        made(master)
    app = make_app(master, KeyGate(key) if key else LoopbackGate())
    config = uvicorn.Config(
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
        timeout_graceful_shutdown=CLOSING,
        ws_max_size=64 * 1024,
        h11_max_incomplete_event_size=64 * 1024,
    )
    opened = listen(host, port)
    server = _Server(config, master)
    async with master.running():
        serving = asyncio.create_task(server.serve(sockets=[opened]))
        try:
            await _until_started(server, serving)
            if ready is not None:
                ready(_address(opened))
            await asyncio.wait(
                {serving, *(() if stop is None else (stop,))}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            server.should_exit = True
            await serving
            opened.close()


async def _until_started(server: _Server, serving: asyncio.Task[None]) -> None:
    answers = asyncio.create_task(server.answers.wait())
    await asyncio.wait({answers, serving}, return_when=asyncio.FIRST_COMPLETED)
    answers.cancel()


def _address(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fastest loop that is there; None: the usual one."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra that need not be there

    return uvloop.new_event_loop
