"""Counts of what the embedded engine does: Python calls, steps of coroutines, tasks, threads and statements of SQLite.

They are the same in each run and on each machine, because nothing that the engine does may depend on time meanwhile:

- Time stands still. Loops that sleep do not go on, caches do not expire, and no chunk of items ends early.
- What the writer thread of SQLite does is done in the event loop: writes that are submitted in the same turn of the
  loop share a commit, those of a later turn never do.
- The watchdog, whose thread does not follow the event loop, is not started.

So nothing is counted of what the engine does periodically, and not how many writes share a commit on a busy machine.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import rune
from rune.adapters.sqlite.database import Database, Write

PACKAGE = str(Path(rune.__file__).parent) + "/"
LOAD = PACKAGE + "cli/bench/"
"""What puts the load on the engine."""

WATCHDOG = "rune-watchdog"
"""The name of its thread."""

COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Newer interpreters run these without a call."""

CLOCKS = ("monotonic", "perf_counter", "thread_time", "thread_time_ns", "time", "time_ns")


class WorkCounts:
    """What happened between `reset` and the end of `attached`. `codes`: how often functions were called or resumed."""

    def __init__(self) -> None:
        self.codes: Counter[CodeType] = Counter()
        self.statements: Counter[str] = Counter()
        self._tasks = 0
        self._threads = 0
        self._active = False

    def reset(self) -> None:
        """Begin at zero."""
        self._active = True
        self.codes.clear()
        self.statements.clear()
        self._tasks = self._threads = 0

    def totals(self) -> dict[str, int]:
        """Return the counts by name: `calls` of functions and `steps` of coroutines of the package, `tasks`, `threads`,
        `statements`."""
        kinds: Counter[bool] = Counter()
        for code, number in list(self.codes.items()):
            if code.co_name not in INLINED and not code.co_filename.startswith(LOAD):
                kinds[bool(code.co_flags & COROUTINE)] += number
        return {
            "calls": kinds[False],
            "steps": kinds[True],
            "tasks": self._tasks,
            "threads": self._threads,
            "statements": self.statements.total(),
        }

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count during the block, in this thread and in threads that start in it. An engine is opened inside."""
        codes = self.codes

        def profile(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and self._active and frame.f_code.co_filename.startswith(PACKAGE):
                codes[frame.f_code] += 1

        connect, start = sqlite3.connect, threading.Thread.start

        def traced_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._count_statement)
            return connection

        def counted_start(thread: threading.Thread) -> None:
            if thread.name != WATCHDOG:
                self._threads += self._active
                start(thread)

        with (
            patch.object(sqlite3, "connect", traced_connect),
            patch.object(threading.Thread, "start", counted_start),
            written_in_loop(),
        ):
            threading.setprofile(profile)
            sys.setprofile(profile)
            try:
                yield
            finally:
                sys.setprofile(None)
                threading.setprofile(None)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Count the tasks of the running loop during the block, in which time stands still."""

        def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            self._tasks += self._active
            return asyncio.Task(work, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(factory)
        with ExitStack() as stack:
            for name in CLOCKS:
                stack.enter_context(patch.object(time, name, constant(getattr(time, name)())))
            try:
                yield
            finally:
                self._active = False

    def _count_statement(self, text: str) -> None:
        # Comments announce the statements of a trigger.
        if self._active and not text.startswith("--"):
            self.statements[" ".join(text.split(None, 3)[:3])] += 1


def constant(moment: float) -> Callable[[], float]:
    """Return a clock that stands still."""
    return lambda: moment


@contextmanager
def written_in_loop() -> Iterator[None]:
    """Let databases that are opened in the block write in the event loop instead of in a thread."""

    def start(database: Database) -> None:
        database._loop = asyncio.get_running_loop()

    def enqueue(database: Database, write: Write) -> None:
        database._pending.append(write)
        if len(database._pending) == 1:
            asyncio.get_running_loop().call_soon(write_all, database)

    def write_all(database: Database) -> None:
        while database._pending:
            database._write_pending()

    with patch.object(Database, "start", start), patch.object(Database, "_enqueue", enqueue):
        yield
