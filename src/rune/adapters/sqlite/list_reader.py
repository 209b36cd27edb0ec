"""Reads lists from the file in threads, so that the event loop answers meanwhile.

Each thread has a connection of its own, which sees every acknowledged write.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from rune.ports.journal import StoreUnavailableError

T = TypeVar("T")

THREADS = 2
LIST_TIMEOUT_S = 30.0
STEPS = 20_000
"""Instructions of SQLite between two looks at the time."""


class Connecting(Protocol):
    """Opens connections to a file."""

    path: Path

    def connect_reader(self) -> sqlite3.Connection:
        """Open a connection that reads only."""


class ListReader:
    """Runs queries in at most THREADS threads, each for at most LIST_TIMEOUT_S."""

    def __init__(self, database: Connecting) -> None:
        self._database = database
        self.pinned: sqlite3.Connection | None = None
        """A connection with a snapshot, from which everything is read while it is set."""
        self._threads: ThreadPoolExecutor | None = None
        self._free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._opened: list[sqlite3.Connection] = []

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a query returns; StoreUnavailableError if it takes too long."""
        if self.pinned is not None:
            return query(self.pinned)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rune-lists")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, query)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._free.get_nowait()
        except queue.Empty:
            connection = self._database.connect_reader()
            self._opened.append(connection)
        deadline = time.monotonic() + LIST_TIMEOUT_S
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        try:
            return query(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise StoreUnavailableError(
                f"{self._database.path}: reading a list took longer than its limit of {LIST_TIMEOUT_S:g} s"
            ) from None
        finally:
            connection.set_progress_handler(None, STEPS)
            self._free.put(connection)

    def close(self) -> None:
        """Stop what is read, and close the connections."""
        if self._threads is None:
            return
        for each in list(self._opened):
            each.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for each in self._opened:
            each.close()
