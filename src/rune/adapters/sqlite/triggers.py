"""Triggers in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.adapters.sqlite.database import Database
from rune.ports.triggers import Trigger, path_taken_error

_TRIGGER_DECODER = msgspec.msgpack.Decoder(Trigger)
_ENCODER = msgspec.msgpack.Encoder()
_SELECT_BODY = "SELECT body FROM workflow_trigger"


class SqliteTriggers:
    """Implements the trigger store. A single thread writes, so revisions are compared and replaced atomically."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        if workflow is None:
            return self._select(f"{_SELECT_BODY} ORDER BY workflow, node")
        return self._select(f"{_SELECT_BODY} WHERE workflow = ? ORDER BY node", workflow)

    async def find(self, id: str) -> Trigger | None:
        return next(iter(self._select(f"{_SELECT_BODY} WHERE id = ?", id)), None)

    async def at_path(self, path: str) -> Trigger | None:
        return next(iter(self._select(f"{_SELECT_BODY} WHERE path = ?", path)), None)

    async def put(self, trigger: Trigger) -> Trigger | None:
        stored = msgspec.structs.replace(trigger, revision=trigger.revision + 1)

        def work(db: sqlite3.Connection) -> Trigger | None:
            known = db.execute("SELECT revision FROM workflow_trigger WHERE id = ?", (stored.id,)).fetchone()
            if (known[0] if known else 0) != trigger.revision:
                return None
            other = db.execute(
                "SELECT workflow FROM workflow_trigger WHERE path = ? AND id <> ?", (stored.path, stored.id)
            ).fetchone()
            if other is not None:
                raise path_taken_error(stored.path, other[0])
            db.execute(
                "INSERT OR REPLACE INTO workflow_trigger VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    stored.id,
                    stored.workflow,
                    stored.node,
                    stored.path,
                    stored.due,
                    stored.revision,
                    _ENCODER.encode(stored),
                ),
            )
            return stored

        result: Trigger | None = await self._database.submit(work)
        return result

    async def remove(self, trigger: Trigger) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return (
                db.execute(
                    "DELETE FROM workflow_trigger WHERE id = ? AND revision = ?",
                    (trigger.id, trigger.revision),
                ).rowcount
                == 1
            )

        removed: bool = await self._database.submit(work)
        return removed

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        return self._select(f"{_SELECT_BODY} WHERE due <= ? ORDER BY due LIMIT ?", now, limit)

    async def next_due(self) -> int | None:
        row = self._database.reader.execute("SELECT min(due) FROM workflow_trigger WHERE due IS NOT NULL")
        found: int | None = row.fetchone()[0]
        return found

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        def work(db: sqlite3.Connection) -> str:
            db.execute(
                "INSERT OR IGNORE INTO signed_delivery VALUES (?, ?, ?, ?)", (trigger, mark, delivery, until)
            )
            (first,) = db.execute(
                "SELECT delivery FROM signed_delivery WHERE trigger_id = ? AND mark = ?", (trigger, mark)
            ).fetchone()
            return str(first)

        first: str = await self._database.submit(work)
        return first

    async def forget_deliveries(self, now: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            return db.execute("DELETE FROM signed_delivery WHERE until < ?", (now,)).rowcount

        dropped: int = await self._database.submit(work)
        return dropped

    def _select(self, statement: str, *values: Any) -> Sequence[Trigger]:
        return [_TRIGGER_DECODER.decode(row[0]) for row in self._database.reader.execute(statement, values)]
