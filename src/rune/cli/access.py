"""What commands ask about keys, grants and the log: of the server that RUNE_URL names, or of the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar, cast

import typer

from rune import compose
from rune.cli.problems import INTERRUPTED, refuse_error
from rune.client import AsyncClient
from rune.compose.parts import Access
from rune.errors import RuneError
from rune.runtime.desk import Desk
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from rune.cli.remote.vault import RemoteVault

S = TypeVar("S")
T = TypeVar("T")


def read(settings: Settings, wish: Callable[[Access], Awaitable[T]], nothing: T) -> T:
    """Look into the stores, beside whoever writes them."""
    return beside(settings, compose.access, wish, nothing)


def beside(
    settings: Settings,
    opening: Callable[[Settings], AbstractAsyncContextManager[S]],
    wish: Callable[[S], Awaitable[T]],
    nothing: T,
) -> T:
    """Look into what is opened so; `nothing` where nobody has written anything yet."""

    async def asked() -> T:
        async with opening(settings) as opened:
            return await wish(opened)

    if not compose.exists(settings):
        return nothing
    try:
        return asyncio.run(asked())
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        return nothing


def write(settings: Settings, wish: Callable[[Desk], Awaitable[T]]) -> T:
    """Have something written by whoever owns the stores."""

    async def asked() -> T:
        async with compose.desk(settings) as desk:
            return await wish(desk)

    return asyncio.run(asked())


def over_url(settings: Settings, wish: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Ask a server."""
    from rune.cli.remote.asking import client  # noqa: PLC0415 - a slow import that few need

    async def asked() -> T:
        async with client(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def over_vault(settings: Settings, wish: Callable[[RemoteVault], Awaitable[T]]) -> T:
    """Ask a server about its credentials."""
    from rune.cli.remote.vault import remote_vault  # noqa: PLC0415

    async def asked() -> T:
        async with remote_vault(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def changed(settings: Settings, wish: Callable[[Desk], Awaitable[T]]) -> T:
    """Have a credential changed, by a server or by whoever owns the stores. Both know the same verbs."""
    if settings.url:
        return over_vault(settings, cast("Callable[[RemoteVault], Awaitable[T]]", wish))
    return write(settings, wish)


def leave(work: Callable[[Settings], None], *, as_json: bool) -> None:
    """Do it and leave, with a refusal as the other commands say it."""
    code = 0
    try:
        work(load_settings())
    except RuneError as error:
        code = refuse_error(error, as_json=as_json)
    except (KeyboardInterrupt, EOFError):
        code = INTERRUPTED
    raise typer.Exit(code)
