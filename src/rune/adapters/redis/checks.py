"""Fitness: what a server must be, and what it had better be, before anything is trusted to it.

What the user of a connection may not do: each command that is needed is tried on a key that is not there, in a way
that changes nothing.

What a server tells to somebody who takes no part.

ACL: the commands and names that a user of Redis needs to take part, and no others.

Functions run with the rights of whoever calls them, so what the scripts do is in the list too. Everybody who takes
part keeps the same state by the same functions: roles have users and passwords of their own, and the same rights.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from rune.adapters.redis.client import Argument, Client, RedisError, info
from rune.adapters.redis.keys import Keys
from rune.errors import RuneError

log = logging.getLogger("rune.redis")

MIN_SERVER_VERSION = (7, 0)
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


class UnsuitableServerError(RuneError):
    """The server must not be used as it is."""

    code = "REDIS_UNFIT"


async def check(client: Client, keys: Keys) -> None:
    """Refuses, with what to change, or warns; and fixes the number of partitions at the first start."""
    told = info(await client.call("INFO", "server")) | info(await client.call("INFO", "memory"))
    told |= info(await client.call("INFO", "persistence")) | info(await client.call("INFO", "replication"))
    version = tuple(int(part) for part in told["redis_version"].split(".")[:2])
    if version < MIN_SERVER_VERSION:
        raise UnsuitableServerError(
            f"Redis {told['redis_version']} is too old: 7.0 is the oldest that will do"
        )
    if told.get("redis_mode", "standalone") != "standalone":
        raise UnsuitableServerError(
            f"the server runs as `{told['redis_mode']}`: only a single server with replicas will do"
        )
    if told.get("role", "master") != "master":
        raise UnsuitableServerError("the server is a replica: it takes no writes")
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnsuitableServerError(
            f"maxmemory-policy is `{policy}`: set it to noeviction, or state is silently thrown away"
        )
    if told.get("aof_enabled", "0") == "0":
        log.warning(
            "Redis keeps no append-only file: after a restart every execution is read back from the journal"
        )
    await _check_rights(client, keys)
    await _same_partitions(client, keys)


async def _check_rights(client: Client, keys: Keys) -> None:
    place = f"{keys.prefix}:{{p00}}:probe:{secrets.token_hex(4)}"  # others may start this moment
    for probe in PROBES:
        try:
            await client.call(*(str(part).replace("KEY", place) for part in probe))
        except RedisError as error:
            if error.code != "NOPERM":
                raise
            raise UnsuitableServerError(
                f"this user of Redis may not use {probe[0]}: {error.message}"
            ) from error


async def _same_partitions(client: Client, keys: Keys) -> None:
    """Another number would look for executions where they are not."""
    await client.call("HSETNX", keys.settings, "partitions", keys.partitions)
    kept = int(await client.call("HGET", keys.settings, "partitions"))
    if kept != keys.partitions:
        raise UnsuitableServerError(
            f"there are {kept} partitions in Redis, and {keys.partitions} were asked for"
        )


PROBE_ID = "doctor"


def _probes(key: str) -> dict[str, tuple[Argument, ...]]:
    group = (key, PROBE_ID)
    return {
        "fcall": ("rune_doctor_asks", 0),
        "function load": ("#!lua name=rune_doctor\n",),
        "publish": (key, ""),
        "del": (key,),
        "exists": (key,),
        "pexpire": (key, 1),
        "rename": (key, key),
        "scan": (0, "MATCH", key, "COUNT", 1),
        "get": (key,),
        "set": (key, "", "XX"),
        "hdel": (key, "f"),
        "hget": (key, "f"),
        "hgetall": (key,),
        "hkeys": (key,),
        "hmget": (key, "f"),
        "hscan": (key, 0),
        "hvals": (key,),
        "zadd": (key, "XX", 1, "m"),
        "zrange": (key, 0, 0),
        "zrangebylex": (key, "-", "+"),
        "zrangebyscore": (key, 0, 0),
        "zrem": (key, "m"),
        "zscore": (key, "m"),
        "xack": (*group, "1-1"),
        "xadd": (key, "NOMKSTREAM", "*", "f", "v"),
        "xautoclaim": (*group, PROBE_ID, 1, "0"),
        "xclaim": (*group, PROBE_ID, 1, "1-1"),
        "xdel": (key, "1-1"),
        "xgroup create": (*group, "$"),
        "xgroup delconsumer": (*group, PROBE_ID),
        "xinfo groups": (key,),
        "xlen": (key,),
        "xpending": group,
        "xrange": (key, "-", "+"),
        "xreadgroup": ("GROUP", PROBE_ID, PROBE_ID, "STREAMS", key, ">"),
    }


async def missing_rights(client: Client, keys: Keys) -> tuple[str, ...]:
    """The commands that this user may not run on our keys."""
    probes = _probes(f"{keys.prefix}:{PROBE_ID}")
    asked = (client.call(*name.upper().split(), *given) for name, given in probes.items())
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException) and not isinstance(each, RedisError):
            raise each
    return tuple(
        name for name, each in zip(probes, answers, strict=True) if isinstance(each, RedisError) and _no(each)
    )


def _no(error: RedisError) -> bool:
    return error.code == "NOPERM" or error.message.startswith("NOPERM")


async def inspect(client: Client) -> dict[str, Any]:
    """Findings, by the names that a survey has for them."""
    told: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication"):
        told |= info(await client.call("INFO", section))
    return {
        "redis": told["redis_version"],
        "aof": told.get("aof_enabled", "0") != "0",
        "policy": told.get("maxmemory_policy", "noeviction"),
        "memory": int(told.get("used_memory", 0)),
        "memory_limit": int(told.get("maxmemory", 0)),
        "state_trouble": _trouble(told),
    }


def _trouble(told: dict[str, str]) -> str:
    if told.get("role", "master") != "master":
        return "the server is a replica: it takes no writes"
    if told.get("redis_mode", "standalone") != "standalone":
        return f"the server runs as `{told['redis_mode']}`: only a single server with replicas will do"
    return ""


ROLES = ("worker", "scheduler", "api")
WATCHER = "watcher"
"""Somebody who measures how much waits, and can change nothing."""

CONNECTION = ("auth", "select", "ping", "info", "time", "client|id", "client|unblock")
FUNCTIONS = ("fcall", "function|load")
NOTIFICATIONS = ("publish", "subscribe")
KEYS = ("del", "exists", "pexpire", "rename", "scan", "get", "set")
HASHES = ("hdel", "hget", "hgetall", "hkeys", "hmget", "hscan", "hset", "hsetnx", "hvals")
SORTED = ("zadd", "zrange", "zrangebylex", "zrangebyscore", "zrem", "zscore")
STREAMS = (
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xgroup|create",
    "xgroup|delconsumer",
    "xinfo|consumers",
    "xinfo|groups",
    "xlen",
    "xpending",
    "xrange",
    "xreadgroup",
)
COMMANDS = (*CONNECTION, *FUNCTIONS, *NOTIFICATIONS, *KEYS, *HASHES, *SORTED, *STREAMS)
WATCHED = (
    "auth",
    "hello",
    "select",
    "ping",
    "info",
    "client|setname",
    "xinfo|groups",
    "xlen",
    "xpending",
)


def rules(prefix: str) -> str:
    """What somebody who takes part may do."""
    return f"~{prefix}:* &{prefix}:* {' '.join(f'+{each}' for each in COMMANDS)}"


def watcher_rules(prefix: str) -> str:
    """What somebody who measures may do."""
    return f"%R~{prefix}:* {' '.join(f'+{each}' for each in WATCHED)}"


def acl_file(prefix: str, passwords: Mapping[str, str]) -> str:
    """Lines of a file that Redis loads with `aclfile`, one for each role that has a password; the user that everybody
    is who does not log in can do nothing."""
    lines = ["user default off resetkeys resetchannels -@all"]
    for role, password in passwords.items():
        digest = hashlib.sha256(password.encode()).hexdigest()
        may = watcher_rules(prefix) if role == WATCHER else rules(prefix)
        lines.append(f"user {user_name(role)} on #{digest} resetkeys resetchannels -@all {may}")
    return "\n".join(lines) + "\n"


def user_name(role: str) -> str:
    return f"rune-{role}"
