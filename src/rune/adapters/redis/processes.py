"""Registry of running processes in Redis: one hash field per process, removed on read once it has expired."""

from __future__ import annotations

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.keys import KeySpace
from rune.decoding import MalformedDataError, decode
from rune.ports.processes import ProcessInfo

_JSON = msgspec.json.Encoder()
_PROCESS = msgspec.json.Decoder(ProcessInfo)


class RedisProcessRegistry:
    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._key = f"{keys.prefix}:fleet"

    async def heartbeat(self, member: ProcessInfo) -> None:
        shown = msgspec.structs.replace(member, seen_at=await self._now())
        await self._client.call("HSET", self._key, member.name, _JSON.encode(shown))

    async def leave(self, name: str) -> None:
        await self._client.call("HDEL", self._key, name)

    async def list(self) -> list[ProcessInfo]:
        now = await self._now()
        found = []
        for packed in await self._client.call("HVALS", self._key):
            try:
                member = decode(_PROCESS, packed)
            except MalformedDataError:
                # Written by a newer release.
                continue
            if now - member.seen_at <= member.expiry_s * 1000:
                found.append(member)
            else:
                await self.leave(member.name)
        return sorted(found, key=lambda each: (each.started_at, each.name))

    async def _now(self) -> int:
        seconds, micros = await self._client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000
