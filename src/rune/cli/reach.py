"""Whom commands ask: the server that RUNE_URL names, or else the stores by way of the composition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from rune import compose
from rune.runtime.desk import Desk
from rune.runtime.reader import Reader
from rune.settings import Settings


@asynccontextmanager
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    """The verbs, done by whoever may."""
    if not settings.url:
        async with compose.desk(settings) as opened:
            yield opened
        return
    from rune.cli.remote.asking import client  # noqa: PLC0415 - a slow import that few need
    from rune.cli.remote.desk import RemoteDesk  # noqa: PLC0415

    async with client(settings) as asked:
        yield cast(Desk, RemoteDesk(asked, settings))


@asynccontextmanager
async def reader(settings: Settings) -> AsyncIterator[Reader]:
    """A look at what is remembered."""
    if not settings.url:
        async with compose.reader(settings) as opened:
            yield opened
        return
    from rune.cli.remote.asking import client  # noqa: PLC0415 - a slow import that few need
    from rune.cli.remote.reader import RemoteReader  # noqa: PLC0415

    async with client(settings) as asked:
        yield cast(Reader, RemoteReader(asked, settings))


def exists(settings: Settings) -> bool:
    """Whether there is anything to look at. A server that cannot be reached says so itself."""
    return bool(settings.url) or compose.exists(settings)


async def owner(settings: Settings) -> tuple[bool, str]:
    """Whether executions are run now, and by whom, in words."""
    return (True, f"at {settings.url}") if settings.url else await compose.owner(settings)


def owner_pid(settings: Settings) -> int | None:
    """Which process owns the file."""
    return None if settings.url else compose.owner_pid(settings)
