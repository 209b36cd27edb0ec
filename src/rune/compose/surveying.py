"""A look at the stores of a cluster by somebody who takes no part. A store that does not answer is a finding."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from rune.adapters.postgres.database import Database, place
from rune.adapters.postgres.inspecting import inspect as inspect_postgres
from rune.adapters.redis.inspecting import inspect as inspect_redis
from rune.adapters.redis.open import RedisStores
from rune.compose.parts import keys
from rune.errors import RuneError
from rune.ports.inspection import Survey
from rune.settings import Settings

QUESTIONS = 7


async def survey(settings: Settings) -> Survey:
    """What there is to know."""
    found: dict[str, Any] = {"journal": place(settings.journal), "state": _shown(settings.state)}
    found |= await _asked("journal_trouble", lambda: _journal(settings))
    found |= await _asked("state_trouble", lambda: _state(settings))
    return Survey(**found, **_keys(settings))


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
        return found | {"journal_ms": await _median(lambda: database.fetch("SELECT 1"))}
    finally:
        await database.close()


async def _state(settings: Settings) -> dict[str, Any]:
    stores = RedisStores(settings.state, prefix=settings.prefix, partitions=settings.partitions)
    client = stores.client
    try:
        found = await inspect_redis(client)
        members = await stores.fleet.members()
        return found | {
            "state_ms": await _median(lambda: client.call("PING")),
            "workers": tuple(each for each in members if "worker" in each.roles),
            "schedulers": tuple(each for each in members if "scheduler" in each.roles),
        }
    finally:
        await client.close()


async def _median(ask: Callable[[], Awaitable[Any]]) -> float:
    took = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)
    return round(sorted(took)[QUESTIONS // 2] * 1000, 3)


def _keys(settings: Settings) -> dict[str, Any]:
    source = keys(settings)
    try:
        return {"keys": len(source.ring().names), "keys_from": source.where}
    except RuneError as error:
        missing = error.code == "SECRET_KEY_MISSING" and not source.file.exists()
        return {"keys_from": source.where, "keys_trouble": "" if missing else error.message}


def _shown(url: str) -> str:
    """An address without what is secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
