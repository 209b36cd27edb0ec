"""Limits on starts in the same database. They are judged in the act that accepts a start, under a lock."""

from __future__ import annotations

import msgspec

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query
from rune.ports.limits import Limits

_LIMITS = msgspec.json.Decoder(Limits)


class PostgresLimits:
    """Limits by whom they are for. Time is the database's: the clocks of those who ask it may be apart."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        if not limits:
            await self._database.fetch(query("limits_remove"), subject)
            return
        bucket = limits.bucket
        counted = (None, None, None) if bucket is None else (bucket.starts, bucket.period, bucket.burst)
        text = msgspec.json.encode(limits).decode()
        await self._database.fetch(query("limits_put"), subject, text, *counted, limits.running)

    async def all(self) -> dict[str, Limits]:
        rows = await self._database.fetch(query("limits"))
        return {row["subject"]: _LIMITS.decode(row["limits"]) for row in rows}
