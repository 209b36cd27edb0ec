"""Workflows of which an execution has to complete in time, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rune.adapters.postgres.database import Database, Row, query
from rune.adapters.rows import completion_of, encode_missing
from rune.ports.journal import Missing
from rune.ports.workflows import Expectation, moved_on

PAGE_SIZE = 50
_END = 2**62

_DECODER = msgspec.msgpack.Decoder(Expectation)
_ENCODER = msgspec.msgpack.Encoder()


class PostgresExpectations:
    """Expectations with optimistic locking: one statement compares and replaces the revision."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> Sequence[Expectation]:
        return _read(await self._database.fetch(query("expectations")))

    async def find(self, workflow: str) -> Expectation | None:
        return next(iter(_read(await self._database.find_all(query("expectation"), workflow))), None)

    async def put(self, expectation: Expectation, missing: Missing | None = None) -> Expectation | None:
        stored = replace(expectation, revision=expectation.revision + 1)
        body = _ENCODER.encode(stored)
        if expectation.revision:
            row = await self._database.once(
                query("expectation_update"),
                stored.workflow,
                stored.due,
                expectation.revision,
                body,
                *missing_values(missing),
            )
        else:
            row = await self._database.once(
                query("expectation_insert"), stored.workflow, stored.due, body, *missing_values(missing)
            )
        return None if row is None else stored

    async def remove(self, expectation: Expectation) -> bool:
        row = await self._database.once(
            query("expectation_remove"), expectation.workflow, expectation.revision
        )
        return row is not None

    async def due(self, now: int, limit: int) -> Sequence[Expectation]:
        return _read(await self._database.fetch(query("expectations_due"), now, limit))

    async def last_completed(self, workflow: str, after: int) -> int | None:
        before = (_END, _END)
        while rows := await self._database.fetch(
            query("last_completed"), workflow, after, *before, PAGE_SIZE
        ):
            found = completion_of(rows)
            if found is not None:
                return found
            before = (rows[-1]["ended_at"], rows[-1]["n"])
        return None

    async def note_completions(self, workflow: str) -> None:
        """Move the expectation of a workflow on to its last completion, before executions of it are removed."""
        while (known := await self.find(workflow)) is not None:
            last = await self.last_completed(workflow, known.since)
            if last is None or await self.put(moved_on(known, last)) is not None:
                return


def missing_values(missing: Missing | None) -> tuple[object, ...]:
    """Return name, time and body of the row of a handler, NULL if nothing is missing."""
    return (None, None, None) if missing is None else (missing.name, missing.at, encode_missing(missing))


def _read(rows: Sequence[Row]) -> Sequence[Expectation]:
    return [_DECODER.decode(row["body"]) for row in rows]
