"""Triggers and the webhook deliveries seen by them in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import msgspec

from rune.adapters.postgres.database import Database, DatabaseRefusedError, Row, query
from rune.ports.triggers import Trigger, path_taken_error

_TRIGGER = msgspec.msgpack.Decoder(Trigger)
_PACK = msgspec.msgpack.Encoder()


class PostgresTriggers:
    """Triggers with optimistic locking: one statement compares and replaces the revision."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        return _read(await self._database.find_all(query("triggers"), workflow))

    async def find(self, id: str) -> Trigger | None:
        return next(iter(_read(await self._database.find_all(query("trigger"), id))), None)

    async def at_path(self, path: str) -> Trigger | None:
        return next(iter(_read(await self._database.find_all(query("trigger_at_path"), path))), None)

    async def put(self, trigger: Trigger) -> Trigger | None:
        stored = msgspec.structs.replace(trigger, revision=trigger.revision + 1)
        body = _PACK.encode(stored)
        statement: tuple[Any, ...]
        if trigger.revision:
            statement = (
                query("trigger_update"),
                stored.id,
                stored.path,
                stored.due,
                trigger.revision,
                body,
            )
        else:
            statement = (
                query("trigger_insert"),
                stored.id,
                stored.workflow,
                stored.node,
                stored.path,
                stored.due,
                body,
            )
        try:
            row = await self._database.once(*statement)
        except DatabaseRefusedError as error:
            if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise
            other = None if stored.path is None else await self.at_path(stored.path)
            raise path_taken_error(stored.path, None if other is None else other.workflow) from None
        return None if row is None else stored

    async def remove(self, trigger: Trigger) -> bool:
        row = await self._database.once(query("trigger_remove"), trigger.id, trigger.revision)
        return row is not None

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        return _read(await self._database.fetch(query("triggers_due"), now, limit))

    async def next_due(self) -> int | None:
        (row,) = await self._database.fetch(query("triggers_next_due"))
        due: int | None = row["due"]
        return due

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        await self._database.fetch(query("delivery_insert"), trigger, mark, delivery, until)
        (row,) = await self._database.fetch(query("delivery"), trigger, mark)
        return str(row["delivery"])

    async def forget_deliveries(self, now: int) -> int:
        (row,) = await self._database.fetch(query("deliveries_forget"), now)
        return int(row["dropped"])


def _read(rows: Sequence[Row]) -> Sequence[Trigger]:
    return [_TRIGGER.decode(row["body"]) for row in rows]
