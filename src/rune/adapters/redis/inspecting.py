"""What a server tells to somebody who takes no part."""

from __future__ import annotations

from typing import Any

from rune.adapters.redis.client import Client, info


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
