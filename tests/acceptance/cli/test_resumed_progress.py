"""A fan-out whose process is killed and that another resumes: no count on its terminal is larger than its total."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rune.bootstrap import running_engine
from rune.cli.live import ExecutionPoller
from rune.cli.progress import NodeProgress, ProgressCounter
from rune.nodes.registry import full_registry
from rune.settings import Settings
from tests.support.cli_process import TIMEOUT_S, until
from tests.support.documents import document, node
from tests.support.forked_rune import PATHS

ITEMS = 2_000
ENDED = 100
"""Items that end before the first process is killed."""

NODES = """
import asyncio, os, pathlib, threading
from rune.nodes.custom import node

@node("held.effect")
async def effect(number: int) -> int:
    if number >= int(os.environ["HELD_FROM"]) and not pathlib.Path("go").exists():
        await asyncio.Event().wait()  # until the process is killed
    with open("ended", "a") as ended:
        ended.write("one more\\n")
    return number

@node("held.shown")
async def shown() -> None:
    pause = threading.Event()
    while not pathlib.Path("shown").exists():  # frames are drawn meanwhile
        await asyncio.to_thread(pause.wait, 0.01)
"""
COUNTS = re.compile(r"([\d,]+)/([\d,]+)")
FANNED = document(
    [
        node("start", "input"),
        node("parts", "split", {"input_array": "$trigger"}),
        node("inner", "held.effect", {"number": "{{ $item }}"}),
        node("all", "aggregator"),
        node("last", "held.shown"),
    ],
    "start>parts",
    "parts>inner",
    "inner>all",
    "all>last",
    id="fanned",
)


def begin(folder: Path, terminal: int, *options: str) -> subprocess.Popen[bytes]:
    """Start or resume the run, with its output on a terminal."""
    (folder / "held.py").write_text(NODES)
    (folder / "fanned.json").write_text(json.dumps(FANNED))
    (folder / "items.json").write_text(json.dumps(list(range(ITEMS))))
    command = [sys.executable, "-m", "rune.cli.main", "run", str(folder / "fanned.json"), "--key", "k"]
    command += ["--nodes", "held", "--input", f"@{folder / 'items.json'}", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": PATHS,
        "RUNE_HOME": str(folder / "home"),
        "HELD_FROM": str(ENDED),
        "TERM": "xterm",
        "COLUMNS": "120",
        "LINES": "40",
    }
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=terminal, stderr=terminal)


class Terminal:
    """The terminal of a run, and everything that the run has shown on it."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = begin(folder, theirs)
        os.close(theirs)
        self.shown = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the terminal is closed with the process
            while read := os.read(self._ours, 65_536):
                self.shown += read.decode(errors="replace")

    def counts(self) -> list[tuple[int, int]]:
        """Return the counts that were shown, each with its total."""
        return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in COUNTS.findall(self.shown)]

    def wait(self) -> int:
        """Wait for the end of the run; return its exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join()
        os.close(self._ours)
        return code


def ended(folder: Path) -> int:
    """Return how many items have run to their end."""
    path = folder / "ended"
    return path.read_text().count("\n") if path.exists() else 0


def kill_in_the_middle(folder: Path, *options: str) -> None:
    """Start the run and kill its process when some items have ended; let the other items end afterwards."""
    first = begin(folder, subprocess.DEVNULL, *options)
    try:
        until(lambda: ended(folder) >= ENDED or first.poll() is not None or None, "some items have ended")
        assert first.poll() is None, "the other items wait"
    finally:
        first.kill()
        first.wait(TIMEOUT_S)
    (folder / "go").touch()


def test_terminal_of_run_that_was_killed_shows_no_count_beyond_its_total(tmp_path: Path) -> None:
    kill_in_the_middle(tmp_path)
    second = Terminal(tmp_path)
    until(
        lambda: (ITEMS, ITEMS) in second.counts() or second.process.poll() is not None or None,
        "the results before the kill are counted too",
    )
    (tmp_path / "shown").touch()
    assert second.wait() == 0, second.shown[-2_000:]
    counts = second.counts()
    assert all(done <= total for done, total in counts), max(counts)
    assert (ITEMS, ITEMS) in counts


def test_item_that_is_both_read_and_observed_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_in_the_middle(tmp_path, "--id", "fanned-1")
    (tmp_path / "shown").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELD_FROM", str(ENDED))

    async def resume() -> dict[str, NodeProgress]:
        settings = Settings(home=str(tmp_path / "home"))
        counter = ProgressCounter("fanned-1")
        async with running_engine(settings, registry=full_registry(("held",)), observer=counter) as engine:
            accepted = await engine.backend.journal.accepted("fanned-1")
            assert accepted is not None
            plan = await engine.plans.plan(accepted.hash)
            counter.begin(plan, "fanned-1")
            await (await engine.wait_for("fanned-1"))
            # The process that resumes a run observes its end, and reads results that it has observed already.
            poller = ExecutionPoller(accepted, plan, counter)
            poller.count(await engine.backend.journal.facts("fanned-1", 0))
            return {each.node: each for each in counter.lines()}

    found = asyncio.run(resume())
    assert (found["inner"].ended, found["inner"].total) == (ITEMS, ITEMS)
    assert (found["parts"].done, found["parts"].total) == (ITEMS, ITEMS)
