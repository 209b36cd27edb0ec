"""Which executions blocked the event loop of a process of the cluster, in PostgreSQL.

A block is noted as soon as it lasts a second, and counts 10 s later. A process whose loop runs again before that
removes the note; one that was killed does not. So the note of a killed process counts without anyone watching it.

The thread that notes a block opens a connection of its own: the loop that owns the other connections is blocked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rune.adapters.postgres.database import Database, query
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import HELD_S

TIMEOUT_S = 5.0
"""How long a note may take. The thread that writes it watches nothing meanwhile."""


class PostgresBlockMarks:
    """Marks that all processes of a cluster share. `blocks` and `quarantined` return what `refresh` read last."""

    def __init__(self, database: Database, dsn: str, process: str) -> None:
        self._database = database
        self._dsn = dsn
        self._process = process
        self._number = 0
        self._open: dict[str, str] = {}
        self._blocks: Mapping[str, int] = {}
        self._quarantined: Mapping[str, str] = {}
        self._lock = threading.Lock()

    def suspect(self, execution: str) -> None:
        self._note(execution, self._mark(execution), round(HELD_S * 1000))

    def clear(self, execution: str) -> None:
        mark = self._open.pop(execution, None)
        if mark is not None:
            self._in_thread(lambda database: database.fetch(query("block_remove"), execution, mark))

    def add(self, execution: str) -> int:
        rows = self._note(execution, self._mark(execution), 0)
        self._open.pop(execution, None)
        return next((row["blocks"] for row in rows if row["execution"] == execution), 0)

    def _mark(self, execution: str) -> str:
        """Return the name of the block that an execution begins or continues."""
        if execution not in self._open:
            self._number += 1
            self._open[execution] = f"{self._process}-{self._number}"
        return self._open[execution]

    def _note(self, execution: str, mark: str, delay_ms: int) -> Any:
        async def note(database: Database) -> Any:
            await database.fetch(query("block_add"), execution, mark, delay_ms)
            return await database.fetch(query("block_list"))

        return self._in_thread(note)

    def _in_thread(self, work: Callable[[Database], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            database = Database(self._dsn, size=1)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await database.connect()
                    return await work(database)
            except TimeoutError:
                raise StoreUnavailableError(f"{database.where}: no answer within {TIMEOUT_S:.0f} s") from None
            finally:
                await database.close()

        return asyncio.run(run())

    async def refresh(self) -> None:
        rows = await self._database.fetch(query("block_list"))
        with self._lock:
            self._quarantined = {row["execution"]: row["reason"] for row in rows if row["reason"] is not None}
            self._blocks = {row["execution"]: row["blocks"] for row in rows if row["reason"] is None}

    async def tidy(self) -> None:
        await self._database.fetch(query("block_tidy"))

    def blocks(self) -> Mapping[str, int]:
        with self._lock:
            return self._blocks

    async def quarantine(self, execution: str, reason: str) -> None:
        await self._database.fetch(query("block_quarantine"), execution, reason)
        await self.refresh()

    def quarantined(self) -> Mapping[str, str]:
        with self._lock:
            return self._quarantined

    async def forget(self, execution: str) -> None:
        await self._database.fetch(query("block_forget"), execution)
        await self.refresh()


async def quarantined(database: Database) -> tuple[str, ...]:
    """Return the executions in quarantine, by id."""
    rows = await database.fetch(query("block_list"))
    return tuple(row["execution"] for row in rows if row["reason"] is not None)
