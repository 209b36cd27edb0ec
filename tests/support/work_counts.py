"""Counts of what an engine does: Python calls, steps of coroutines, tasks, threads, statements of SQLite and bytes.
Unlike times they hardly depend on the machine and its load.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import rune
from tests.support.paths import ROOT

PACKAGE = str(Path(rune.__file__).parent) + "/"
LOAD = (PACKAGE + "cli/bench/", str(ROOT / "tests") + "/")
"""What puts the load on the engine, and these counts themselves."""

COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Newer interpreters run these without a call."""

PERIODIC = ("PRAGMA", "SELECT wake_at", "SELECT min(due)", "SELECT 1")
"""Statements that the engine executes every so many seconds, whether it works or not."""


class WorkCounts:
    """What happened since `reset`. `codes`: how often each function was called or resumed."""

    def __init__(self) -> None:
        self.codes: Counter[CodeType] = Counter()
        self.statements: Counter[str] = Counter()
        self._tasks = 0
        self._threads = 0
        self._written = 0

    def reset(self) -> None:
        """Begin at zero."""
        self.codes.clear()
        self.statements.clear()
        self._tasks = self._threads = 0
        self._written = bytes_written()

    def totals(self) -> dict[str, int]:
        """Return the counts by name: `calls` of functions and `steps` of coroutines of the package, `library` calls of
        what it uses, `tasks`, `threads`, `statements` and `bytes`."""
        written = bytes_written() - self._written
        kinds: Counter[str] = Counter()
        for code, number in list(self.codes.items()):
            if not code.co_filename.startswith(LOAD) and code.co_name not in INLINED:
                kinds[_kind(code)] += number
        return {
            **{kind: kinds[kind] for kind in ("calls", "steps", "library")},
            "tasks": self._tasks,
            "threads": self._threads,
            "statements": self.statements.total(),
            "bytes": written,
        }

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count during the block, in this thread and in threads that start in it. Call `attach` in the event loop."""
        codes = self.codes

        def profile(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                codes[frame.f_code] += 1

        connect, start = sqlite3.connect, threading.Thread.start

        def traced_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._count_statement)
            return connection

        def counted_start(thread: threading.Thread) -> None:
            self._threads += 1
            start(thread)

        interval = sys.getswitchinterval()
        with (
            patch.object(sqlite3, "connect", traced_connect),
            patch.object(threading.Thread, "start", counted_start),
        ):
            threading.setprofile(profile)
            sys.setprofile(profile)
            try:
                yield
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
                sys.setswitchinterval(interval)

    def attach(self) -> None:
        """Count the tasks of the running loop. Threads take turns only when one waits."""
        sys.setswitchinterval(10.0)

        def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            self._tasks += 1
            return asyncio.Task(work, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(factory)

    def _count_statement(self, text: str) -> None:
        # Comments announce the statements of a trigger.
        if not text.startswith(("--", *PERIODIC)):
            self.statements[" ".join(text.split(None, 3)[:3])] += 1


def _kind(code: CodeType) -> str:
    if not code.co_filename.startswith(PACKAGE):
        return "library"
    return "steps" if code.co_flags & COROUTINE else "calls"


def bytes_written() -> int:
    """Return the bytes that this process has passed to `write` so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count what processes write")
