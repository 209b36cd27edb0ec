"""The outbox: what has to be done for an execution that has started or ended, until somebody says that it is done.

`start`: open it, if whoever accepted it did not. `end`: send its completion and close its state. A row is written in
the same act as what it follows from, and several relays may take rows at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from rune.adapters.postgres.batching import Batcher
from rune.adapters.postgres.database import Database, query
from rune.ports.inspection import Backlog
from rune.ports.outbox import Kind, OutboxRow

MAX_ROWS = 256
LINGER_S = 0.1
"""How long what is done may wait to be said with others, in seconds; the relay waits far longer before it looks."""

HOLD_MS = 30_000
"""How long whoever took a row has for it before it is given to another, in ms."""


class DoneRequest:
    """Something that was done by whoever wrote its row."""

    __slots__ = ("execution", "future", "kind")

    def __init__(self, execution: str, kind: Kind) -> None:
        self.execution = execution
        self.kind = kind
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


class PostgresOutbox:
    """Taken, made, done."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settled: Batcher[DoneRequest] = Batcher(
            self._drop, lambda: lambda _: True, lanes=1, most=MAX_ROWS, linger=LINGER_S
        )

    async def take(self, limit: int, held: int = HOLD_MS) -> list[OutboxRow]:
        """Rows that nobody has in hand, oldest first; theirs for a while, by the clock of the database."""
        rows = await self._database.fetch(query("outbox_take"), limit, held)
        return [OutboxRow(*row) for row in sorted(rows)]

    async def keep(self, number: int, body: bytes) -> bytes:
        """Keep the message of a row, so that it is the same however often it is sent; answers the one kept first."""
        row = await self._database.row(query("outbox_keep"), number, body)
        return row["body"] if row is not None else body

    async def done(self, numbers: Sequence[int]) -> None:
        """Nothing is left to do for these. Twice is once, and where it is forgotten it is only done again."""
        await self._database.fetch(query("outbox_done"), list(numbers))

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """Many at once are one act."""
        await self._settled.submit(DoneRequest(execution, kind))

    async def backlog(self) -> Backlog:
        """A row that whoever wrote it has settled is gone; one that is overdue is left to the relays."""
        ((rows, late),) = await self._database.fetch(query("outbox_backlog"))
        return Backlog(rows=rows, lag=(late or 0) / 1000)

    async def close(self) -> None:
        """Write what is under way."""
        await self._settled.close()

    async def _drop(self, group: Sequence[DoneRequest]) -> list[None]:
        executions, kinds = [each.execution for each in group], [each.kind for each in group]
        await self._database.fetch(query("outbox_settled"), executions, kinds)
        return [None] * len(group)
