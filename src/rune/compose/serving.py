"""Serving: the API of a running engine on a port, until somebody wants it to stop."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
from collections.abc import Callable

from rune.compose.answering import NotServed, answering
from rune.master.access.known import known_keys
from rune.master.app import make_app
from rune.master.gate import KeyGate
from rune.master.service import Master
from rune.runtime.engine import Engine
from rune.runtime.reader import Reader
from rune.settings import Settings


def check_address(host: str, *, locked: bool) -> None:
    """Without a key only this machine may ask."""
    if not locked and not is_loopback(host):
        raise NotServed(
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
    keys = known_keys(engine.backend)
    locked = bool(key) or await keys.exist()
    check_address(host, locked=locked)
    master = Master(engine, reader, slots=settings.slots)
    if made is not None:
        made(master)
    app = make_app(master, KeyGate(key, keys, loopback=is_loopback(host)))
    async with master.running(), answering(app, host, port, master.stop) as (url, serving):
        if ready is not None:
            ready(url)
        await asyncio.wait({serving, *(() if stop is None else (stop,))}, return_when=asyncio.FIRST_COMPLETED)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fastest loop that is there; None: the usual one."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra that need not be there

    return uvloop.new_event_loop
