"""ACL: the commands and names that a user of Redis needs to take part, and no others.

Functions run with the rights of whoever calls them, so what the scripts do is in the list too. Everybody who takes
part keeps the same state by the same functions: roles have users and passwords of their own, and the same rights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ROLES = ("worker", "scheduler", "api")
WATCHER = "watcher"
"""Somebody who measures how much waits, and can change nothing."""

CONNECTION = ("auth", "select", "ping", "info", "time", "client|id", "client|unblock")
FUNCTIONS = ("fcall", "function|load")
NEWS = ("publish", "subscribe")
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
COMMANDS = (*CONNECTION, *FUNCTIONS, *NEWS, *KEYS, *HASHES, *SORTED, *STREAMS)
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
