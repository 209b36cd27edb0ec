"""What the user of a connection may not do: each command that is needed is tried on a key that is not there, in a way
that changes nothing."""

from __future__ import annotations

import asyncio

from rune.adapters.redis.client import Argument, Client, RedisError
from rune.adapters.redis.keys import Keys

NOBODY = "doctor"


def _probes(key: str) -> dict[str, tuple[Argument, ...]]:
    group = (key, NOBODY)
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
        "xautoclaim": (*group, NOBODY, 1, "0"),
        "xclaim": (*group, NOBODY, 1, "1-1"),
        "xdel": (key, "1-1"),
        "xgroup create": (*group, "$"),
        "xgroup delconsumer": (*group, NOBODY),
        "xinfo groups": (key,),
        "xlen": (key,),
        "xpending": group,
        "xrange": (key, "-", "+"),
        "xreadgroup": ("GROUP", NOBODY, NOBODY, "STREAMS", key, ">"),
    }


async def lacking(client: Client, keys: Keys) -> tuple[str, ...]:
    """The commands that this user may not run on our keys."""
    probes = _probes(f"{keys.prefix}:{NOBODY}")
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
