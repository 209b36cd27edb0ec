"""The outbox: what has to be done for an execution that has started or ended, until somebody says that it is done.

`start`: open it, if whoever accepted it did not. `end`: send its completion and close its state. A row is written in
the same act as what it follows from, and several relays may take rows at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.grouping import Groups
from rune.adapters.postgres.sql import query

MOST = 256
HELD = 30_000
"""How long whoever took a row has for it before it is given to another, in ms."""


class Notice(msgspec.Struct, frozen=True):
    """One row. `body`: the message, if it was made before."""

    number: int
    execution: str
    kind: Literal["start", "end"]
    body: bytes | None = None


class Opened:
    """An execution that was opened by whoever accepted it."""

    __slots__ = ("execution", "future")

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


class Outbox:
    """Taken, made, done."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opened: Groups[Opened] = Groups(self._drop, lambda: lambda _: True, lanes=1, most=MOST)

    async def take(self, limit: int, held: int = HELD) -> list[Notice]:
        """Rows that nobody has in hand, oldest first; theirs for a while, by the clock of the database."""
        rows = await self._database.fetch(query("outbox_take"), limit, held)
        return [Notice(*row) for row in sorted(rows)]

    async def keep(self, number: int, body: bytes) -> bytes:
        """Keep the message of a row, so that it is the same however often it is sent; answers the one kept first."""
        row = await self._database.row(query("outbox_keep"), number, body)
        return row["body"] if row is not None else body

    async def done(self, numbers: Sequence[int]) -> None:
        """Nothing is left to do for these. Twice is once, and where it is forgotten it is only done again."""
        await self._database.fetch(query("outbox_done"), list(numbers))

    async def opened(self, execution: str) -> None:
        """It was opened by whoever accepted it. Many at once are one act."""
        await self._opened.submit(Opened(execution))

    async def _drop(self, group: Sequence[Opened]) -> list[None]:
        await self._database.fetch(query("outbox_opened"), [each.execution for each in group])
        return [None] * len(group)
