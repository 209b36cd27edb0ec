"""Transactional outbox in PostgreSQL: work that an accepted or ended execution still needs.

A `start` row requests activation in case the accepting process did not activate it; an `end` row requests the
completion to be sent and the state to be dropped. Rows are written in the transaction that causes them, and several
relays may take rows concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence

from rune.adapters.postgres.batching import splitting
from rune.adapters.postgres.database import Database, query
from rune.ports.batcher import Batcher
from rune.ports.inspection import Backlog
from rune.ports.outbox import Kind, OutboxRow

MAX_ROWS = 256
LINGER_S = 0.1
"""How long finished work may wait to be marked done in a batch; relays wait far longer before they take a row."""

HOLD_MS = 30_000
"""How long a relay has for a row before another relay may take it."""


DoneRequest = tuple[str, Kind]
"""Execution and kind of a row whose work was done by the process that wrote it."""


class PostgresOutbox:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._done: Batcher[DoneRequest, None] = Batcher(
            splitting(self._delete_rows), max_requests=MAX_ROWS, linger=LINGER_S
        )

    async def take(self, limit: int, held: int = HOLD_MS) -> list[OutboxRow]:
        """Take up to `limit` rows, oldest first, that no relay holds. They are held for `held` ms by the database's
        clock."""
        rows = await self._database.fetch(query("outbox_take"), limit, held)
        return [OutboxRow(*row) for row in sorted(rows)]

    async def keep(self, number: int, body: bytes) -> bytes:
        """Store the message of a row so that every send repeats it. Return the message that was stored first."""
        row = await self._database.row(query("outbox_keep"), number, body)
        return row["body"] if row is not None else body

    async def done(self, numbers: Sequence[int]) -> None:
        """Delete rows whose work is done. Idempotent; if it is lost, the work is only repeated."""
        await self._database.fetch(query("outbox_done"), list(numbers))

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """Delete the row of this execution and kind; concurrent calls share one statement."""
        await self._done.submit((execution, kind))

    async def backlog(self) -> Backlog:
        """Return the number of rows and for how long the oldest has been free for a relay to take."""
        ((rows, late),) = await self._database.fetch(query("outbox_backlog"))
        return Backlog(rows=rows, lag=(late or 0) / 1000)

    async def close(self) -> None:
        """Write pending requests."""
        await self._done.close()

    async def _delete_rows(self, group: Sequence[DoneRequest]) -> list[None]:
        executions, kinds = [execution for execution, _ in group], [kind for _, kind in group]
        await self._database.fetch(query("outbox_mark_done"), executions, kinds)
        return [None] * len(group)
