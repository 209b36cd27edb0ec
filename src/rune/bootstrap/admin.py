"""Administration of a cluster: the topology and dead letters of the broker, and the survey of `rune doctor`.

In the survey an unreachable store is a finding, not an error.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rune.adapters.postgres.block_marks import quarantined
from rune.adapters.postgres.database import Database, query, redacted_url
from rune.adapters.postgres.schema import inspect as inspect_postgres
from rune.adapters.postgres.schema import rights
from rune.adapters.postgres.workflows import named_queues
from rune.adapters.rabbitmq.amqp.connection import parse_address
from rune.adapters.rabbitmq.topology import Topology, all_exchanges, all_queues, as_text, definitions, roles
from rune.adapters.rabbitmq.topology import inspect as inspect_rabbitmq
from rune.adapters.redis import stores
from rune.adapters.redis.client import Client
from rune.adapters.redis.cluster import is_cluster, open_client
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.stores import inspect as inspect_redis
from rune.adapters.redis.stores import may_load_functions, missing_rights
from rune.bootstrap.cluster import looking_at_redis
from rune.bootstrap.components import keys_found
from rune.errors import RuneError
from rune.ports.inspection import ClusterSurvey
from rune.ports.journal import StoreDamagedError
from rune.settings import Settings, SettingsError

SAMPLES = 7  # of a clock or a response time


def topology(settings: Settings) -> Topology:
    """Return the topology that workers with these settings declare."""
    return Topology(
        settings.queue_prefix,
        settings.queues,
        settings.queue_kind,
        consume_statuses=settings.consume_statuses,
    )


def topology_text(settings: Settings) -> str:
    return as_text(topology(settings))


def topology_document(settings: Settings) -> dict[str, Any]:
    found = topology(settings)
    return {
        "exchanges": msgspec.to_builtins(all_exchanges(found)),
        "queues": msgspec.to_builtins(all_queues(found)),
        "roles": msgspec.to_builtins(roles(found)),
    }


def topology_definitions(settings: Settings, passwords: dict[str, str]) -> dict[str, Any]:
    """Return a definitions file for RabbitMQ, with a user for each role."""
    vhost = parse_address(settings.queue).vhost if settings.brokered else "/"
    return definitions(topology(settings), vhost, passwords, max_dead=settings.max_dead)


def role_names(settings: Settings) -> list[str]:
    """Return the roles that get a RabbitMQ user."""
    return list(roles(topology(settings)))


def redis_users(settings: Settings, passwords: dict[str, str]) -> str:
    """Return an ACL file for Redis, with a user for each role."""
    return stores.acl_file(settings.prefix, passwords, clustered=is_cluster(settings.state))


def redis_roles() -> list[str]:
    """Return the roles that get a Redis user."""
    return [*stores.ROLES, stores.OWNER, stores.WATCHER]


async def survey_cluster(settings: Settings) -> ClusterSurvey:
    """Inspect the stores of a cluster without joining it."""
    found: dict[str, Any] = {"journal": redacted_url(settings.journal), "state": _redact(settings.state)}
    found |= await _inspect("journal_trouble", lambda: _journal(settings))
    found |= await _inspect("state_trouble", lambda: _state(settings))
    if settings.brokered:
        found["queue"] = _redact(settings.queue)
        found |= await _inspect("queue_trouble", lambda: inspect_rabbitmq(settings.queue, topology(settings)))
    return ClusterSurvey(**found, **keys_found(settings), free_space=_free_space(settings))


async def _inspect(error_field: str, ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    try:
        return await ask()
    except RuneError as error:
        return {error_field: error.message}


async def _journal(settings: Settings) -> dict[str, Any]:
    database = Database(settings.journal, size=1, read_only=True)
    await database.connect()
    try:
        found = await inspect_postgres(database)
        if found["schema"]:
            found |= await rights(database)
        if found["schema"] == found["known_schema"] and found["journal_roles"]:
            found["quarantined"] = await quarantined(database)
            found["named_queues"] = await named_queues(database)
        found["journal_skew"] = await _skew(lambda: _postgres_time(database))
        return found | {"journal_ms": await _median(lambda: database.fetch("SELECT 1"))}
    finally:
        await database.close()


async def _state_of_owner(settings: Settings) -> dict[str, Any] | None:
    """Return what the owner of the functions sees of Redis; None if the user is another one."""
    client = open_client(settings.state)
    try:
        lacks = await missing_rights(client, KeySpace(settings.prefix))
        if not {"fcall", "get"} <= set(lacks) or not await may_load_functions(client):
            return None
        milliseconds = await _median(lambda: client.call("PING"))
        return await inspect_redis(client) | {"state_owner": True, "state_ms": milliseconds}
    finally:
        await client.close()


async def _state(settings: Settings) -> dict[str, Any]:
    found = await _state_of_owner(settings)
    if found is not None:
        return found
    try:
        stores = await looking_at_redis(settings)
    except (StoreDamagedError, SettingsError) as error:
        return {"stores_differ": error.message}
    client = stores.client
    try:
        found = await inspect_redis(client)
        if found["state_trouble"]:
            return found
        found |= {
            "state_lacks": await missing_rights(client, stores.keys),
            "state_skew": await _skew(lambda: _redis_time(client)),
        }
        if "hvals" in found["state_lacks"]:
            return found
        members = await stores.processes.list()
        return found | {
            "state_ms": await _median(lambda: client.call("PING")),
            "workers": tuple(each for each in members if "worker" in each.roles),
            "schedulers": tuple(each for each in members if "scheduler" in each.roles),
        }
    finally:
        await client.close()


async def _postgres_time(database: Database) -> int:
    ((_, _, now),) = await database.fetch(query("session"))
    return int(now)


async def _redis_time(client: Client) -> int:
    seconds, micros = await client.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def _skew(ask: Callable[[], Awaitable[int]]) -> float:
    """Return how many seconds a clock is ahead of ours, by the fastest of several responses: the most precise one."""
    found: list[tuple[float, float]] = []
    for _ in range(SAMPLES):
        began = time.time()
        there = await ask()
        ended = time.time()
        found.append((ended - began, there / 1000 - (began + ended) / 2))
    return round(min(found)[1], 3)


def _free_space(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return the folders this machine writes to, with their free bytes."""
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
    for _ in range(SAMPLES):
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)
    return round(sorted(took)[SAMPLES // 2] * 1000, 3)


def _redact(url: str) -> str:
    """Return a URL without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
