"""A look at the stores of a cluster by somebody who takes no part. A store that does not answer is a finding."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rune.adapters.postgres.database import Database, place
from rune.adapters.postgres.inspecting import inspect as inspect_postgres
from rune.adapters.postgres.rights import rights
from rune.adapters.postgres.sql import query
from rune.adapters.rabbitmq.inspecting import inspect as inspect_rabbitmq
from rune.adapters.redis.client import Client
from rune.adapters.redis.inspecting import inspect as inspect_redis
from rune.adapters.redis.open import RedisStores
from rune.adapters.redis.rights import lacking
from rune.compose.broker import topology
from rune.compose.parts import keys_found
from rune.errors import RuneError
from rune.ports.inspection import Survey
from rune.settings import Settings

QUESTIONS = 7


async def survey(settings: Settings) -> Survey:
    """What there is to know."""
    found: dict[str, Any] = {"journal": place(settings.journal), "state": _shown(settings.state)}
    found |= await _asked("journal_trouble", lambda: _journal(settings))
    found |= await _asked("state_trouble", lambda: _state(settings))
    if settings.brokered:
        found["queue"] = _shown(settings.queue)
        found |= await _asked("queue_trouble", lambda: inspect_rabbitmq(settings.queue, topology(settings)))
    return Survey(**found, **keys_found(settings), rooms=_rooms(settings))


async def _asked(trouble: str, ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    try:
        return await ask()
    except RuneError as error:
        return {trouble: error.message}


async def _journal(settings: Settings) -> dict[str, Any]:
    database = Database(settings.journal, size=1, read_only=True)
    await database.connect()
    try:
        found = await inspect_postgres(database)
        if found["schema"]:
            found |= await rights(database)
        found["journal_skew"] = await _skew(lambda: _postgres_time(database))
        return found | {"journal_ms": await _median(lambda: database.fetch("SELECT 1"))}
    finally:
        await database.close()


async def _state(settings: Settings) -> dict[str, Any]:
    stores = RedisStores(settings.state, prefix=settings.prefix, partitions=settings.partitions)
    client = stores.client
    try:
        found = await inspect_redis(client)
        if found["state_trouble"]:
            return found
        found |= {
            "state_lacks": await lacking(client, stores.keys),
            "state_skew": await _skew(lambda: _redis_time(client)),
        }
        if "hvals" in found["state_lacks"]:
            return found
        members = await stores.fleet.members()
        return found | {
            "state_ms": await _median(lambda: client.call("PING")),
            "workers": tuple(each for each in members if "worker" in each.roles),
            "schedulers": tuple(each for each in members if "scheduler" in each.roles),
        }
    finally:
        await client.close()


async def _postgres_time(database: Database) -> int:
    ((_, _, now),) = await database.fetch(query("standing"))
    return int(now)


async def _redis_time(client: Client) -> int:
    seconds, micros = await client.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def _skew(ask: Callable[[], Awaitable[int]]) -> float:
    """By how many seconds a clock is ahead of ours, by the quickest of several answers: that one knows best."""
    found: list[tuple[float, float]] = []
    for _ in range(QUESTIONS):
        began = time.time()
        there = await ask()
        ended = time.time()
        found.append((ended - began, there / 1000 - (began + ended) / 2))
    return round(min(found)[1], 3)


def _rooms(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Where this machine writes, and how much it still can."""
    folders = [Path(settings.home)]
    if settings.blob.startswith("file://"):
        folders.append(Path(settings.blob.removeprefix("file://")))
    there = (
        next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        for folder in folders
    )
    return tuple(
        (str(folder), shutil.disk_usage(place).free) for folder, place in zip(folders, there, strict=True)
    )


async def _median(ask: Callable[[], Awaitable[Any]]) -> float:
    took = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)
    return round(sorted(took)[QUESTIONS // 2] * 1000, 3)


def _shown(url: str) -> str:
    """An address without what is secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
