"""The database file: one writer thread that commits in groups, one reader, one schema.

Whatever the loop submits while a group is being written becomes the next group: a single idle write is not
delayed, and a thousand at once cost one fsync.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rune.adapters.embedded.migrations import migrate
from rune.adapters.embedded.rows import Rows, Start, write_rows, write_starts
from rune.ports.journal import StoreAway

Work = Callable[[sqlite3.Connection], Any]
PATIENCE = 10_000
"""How long a connection waits for another, in ms."""


class Alone:
    """Work that is in no transaction with others: it makes its own, or none."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, db: sqlite3.Connection) -> Any:
        return self.work(db)


class Write:
    """Something to write, and who waits for it."""

    __slots__ = ("answer", "error", "future", "work")

    def __init__(self, work: Work, future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.answer: Any = None
        self.error: BaseException | None = None


class Database:
    """Owns the connections. Reads are answered at once from a snapshot that includes every acknowledged write."""

    def __init__(self, path: Path, *, relaxed: bool = False) -> None:
        self.path = path
        self._relaxed = relaxed
        self._pending: deque[Write] = deque()
        self._wakeup = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer = self._connect()
        migrate(self._writer)
        self.opened = self._count_opening()
        self.reader = self._connect(read_only=True)
        self._thread = threading.Thread(target=self._run, name="rune-writer", daemon=True)
        self.groups = 0

    def _count_opening(self) -> int:
        """How often the file was opened for writing, this time included."""
        try:
            (count,) = self._writer.execute(
                "INSERT INTO opening VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET count = count + 1 RETURNING count"
            ).fetchone()
        except sqlite3.Error as error:
            raise StoreAway(f"cannot write to {self.path}: {error}") from error
        return int(count)

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        uri = f"{self.path.resolve().as_uri()}{'?mode=ro' if read_only else ''}"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")
            connection.execute("PRAGMA cache_size = -16384")
            if not read_only:
                # Only a file in which nothing was written takes this on: it has to come first.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA secure_delete = FAST")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._relaxed else 'FULL'}")
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
        except sqlite3.Error as error:
            raise StoreAway(f"cannot open {self.path}: {error}") from error
        return connection

    def connect_reader(self) -> sqlite3.Connection:
        """One more reader, for whoever has much to read; theirs to close."""
        return self._connect(read_only=True)

    def connect_keeper(self) -> sqlite3.Connection:
        """A connection that writes the log back into the file and nothing else; theirs to close."""
        return self._connect()

    def start(self) -> None:
        """Begin to write, on behalf of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Have something written; the answer comes when it is durable."""
        assert self._loop is not None
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._enqueue(Write(work, future))
        return future

    def _enqueue(self, write: Write) -> None:
        self._pending.append(write)
        if len(self._pending) == 1:
            with self._wakeup:
                self._wakeup.notify()

    def _run(self) -> None:
        while True:
            with self._wakeup:
                while not self._pending and not self._stopping:
                    self._wakeup.wait(0.2)
                if not self._pending:
                    return
            group = [self._pending.popleft()]
            if type(group[0].work) is Alone:
                self._write_alone(group[0])
            else:
                while self._pending and type(self._pending[0].work) is not Alone:
                    group.append(self._pending.popleft())
                self._write(group)
            self._answer(group)

    def _write_alone(self, write: Write) -> None:
        try:
            write.answer = write.work(self._writer)
        except sqlite3.Error as error:
            write.error = StoreAway(f"{self.path}: {error}")
        except Exception as error:
            write.error = error
        finally:
            self._roll_back()

    def _write(self, group: list[Write]) -> None:
        """One transaction for all; if one of them fails, each gets its own savepoint and the innocent go through."""
        self.groups += 1
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            rows: list[Rows] = []
            starts: list[Start] = []
            for write in group:
                if type(write.work) is Rows:
                    rows.append(write.work)
                elif type(write.work) is Start:
                    starts.append(write.work)
                else:
                    write.answer = write.work(self._writer)
            write_starts(self._writer, starts)
            write_rows(self._writer, rows)
            self._writer.execute("COMMIT")
        except Exception:
            self._roll_back()
            self._write_singly(group)

    def _write_singly(self, group: list[Write]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for write in group:
                self._write_one(write)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for write in group:
                write.error = StoreAway(f"{self.path}: {error}")

    def _write_one(self, write: Write) -> None:
        self._writer.execute("SAVEPOINT one")
        try:
            write.answer = write.work(self._writer)
            self._writer.execute("RELEASE one")
        except sqlite3.OperationalError:
            raise  # the file itself: nobody in this group gets through
        except Exception as error:
            self._writer.execute("ROLLBACK TO one")
            self._writer.execute("RELEASE one")
            write.error = error

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _answer(self, group: list[Write]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, group)

    def close(self) -> None:
        """Write what is pending, then let go of the file."""
        self._stopping = True
        with self._wakeup:
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.reader.close()
        self._writer.close()


def _resolve(group: list[Write]) -> None:
    for write in group:
        future = write.future
        if future.done():
            continue
        if write.error is not None:
            future.set_exception(write.error)
        else:
            future.set_result(write.answer)
