"""Fitness: what a server must be, and what it had better be, before anything is trusted to it."""

from __future__ import annotations

import logging
import secrets

from rune.adapters.redis.client import Client, RedisError, info
from rune.adapters.redis.keys import Keys
from rune.errors import RuneError

log = logging.getLogger("rune.redis")

OLDEST = (7, 0)
PROBES: tuple[tuple[str | int, ...], ...] = (
    ("HSET", "KEY:h", "a", "1"),
    ("HGETALL", "KEY:h"),
    ("ZADD", "KEY:z", "1", "a"),
    ("ZRANGE", "KEY:z", "0", "1", "BYSCORE"),
    ("XGROUP", "CREATE", "KEY:s", "g", "0", "MKSTREAM"),
    ("XADD", "KEY:s", "*", "a", "1"),
    ("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "KEY:s", ">"),
    ("XAUTOCLAIM", "KEY:s", "g", "c", "0", "0"),
    ("XPENDING", "KEY:s", "g"),
    ("DEL", "KEY:h", "KEY:z", "KEY:s"),
)


class Unfit(RuneError):
    """The server must not be used as it is."""

    code = "REDIS_UNFIT"


async def check(client: Client, keys: Keys) -> None:
    """Refuses, with what to change, or warns; and fixes the number of partitions at the first start."""
    told = info(await client.call("INFO", "server")) | info(await client.call("INFO", "memory"))
    told |= info(await client.call("INFO", "persistence")) | info(await client.call("INFO", "replication"))
    version = tuple(int(part) for part in told["redis_version"].split(".")[:2])
    if version < OLDEST:
        raise Unfit(f"Redis {told['redis_version']} is too old: 7.0 is the oldest that will do")
    if told.get("redis_mode", "standalone") != "standalone":
        raise Unfit(f"the server runs as `{told['redis_mode']}`: only a single server with replicas will do")
    if told.get("role", "master") != "master":
        raise Unfit("the server is a replica: it takes no writes")
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise Unfit(f"maxmemory-policy is `{policy}`: set it to noeviction, or state is silently thrown away")
    if told.get("aof_enabled", "0") == "0":
        log.warning(
            "Redis keeps no append-only file: after a restart every execution is read back from the journal"
        )
    await _may_do_all(client, keys)
    await _same_partitions(client, keys)


async def _may_do_all(client: Client, keys: Keys) -> None:
    place = f"{keys.prefix}:{{p00}}:probe:{secrets.token_hex(4)}"  # others may start this moment
    for probe in PROBES:
        try:
            await client.call(*(str(part).replace("KEY", place) for part in probe))
        except RedisError as error:
            if error.code != "NOPERM":
                raise
            raise Unfit(f"this user of Redis may not use {probe[0]}: {error.message}") from error


async def _same_partitions(client: Client, keys: Keys) -> None:
    """Another number would look for executions where they are not."""
    await client.call("HSETNX", keys.settings, "partitions", keys.partitions)
    kept = int(await client.call("HGET", keys.settings, "partitions"))
    if kept != keys.partitions:
        raise Unfit(f"there are {kept} partitions in Redis, and {keys.partitions} were asked for")
