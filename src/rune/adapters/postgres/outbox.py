"""The outbox: what has to be done for an execution that has started or ended, until somebody says that it is done.

`start`: open it, if whoever accepted it did not. `end`: send its completion and close its state. A row is written in
the same act as what it follows from, and several relays may take rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.sql import query

HELD = 30_000
"""How long whoever took a row has for it before it is given to another, in ms."""


class Notice(msgspec.Struct, frozen=True):
    """One row. `body`: the message, if it was made before."""

    number: int
    execution: str
    kind: Literal["start", "end"]
    body: bytes | None = None


class Outbox:
    """Taken, made, done."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, limit: int, held: int = HELD) -> list[Notice]:
        """Rows that nobody has in hand, oldest first; theirs for a while, by the clock of the database."""
        rows = await self._database.fetch(query("outbox_take"), limit, held)
        return [Notice(*row) for row in sorted(rows)]

    async def keep(self, number: int, body: bytes) -> bytes:
        """Keep the message of a row, so that it is the same however often it is sent; answers the one kept first."""
        row = await self._database.row(query("outbox_keep"), number, body)
        return row["body"] if row is not None else body

    async def done(self, numbers: Sequence[int]) -> None:
        """Nothing is left to do for these. Twice is once."""
        await self._database.fetch(query("outbox_done"), list(numbers))

    async def opened(self, executions: Sequence[str]) -> None:
        """These were opened by whoever accepted them."""
        await self._database.fetch(query("outbox_opened"), list(executions))
