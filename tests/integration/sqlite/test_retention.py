"""Retention of the SQLite backend: file size, and kills during a collection."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from rune.cli.bench.workloads import fill
from rune.ports.retention import Rule
from tests.contract.suites.retention import ALL, HOUR, NOW
from tests.support.async_test import async_test
from tests.support.sqlite_stores import sqlite_stores

ROOT = Path(__file__).resolve().parents[3]
TABLES = ("execution", "fact", "claim", "blob", "needs", "dead_letter", "removed")

COLLECT_SCRIPT = """
import asyncio, sys
from pathlib import Path
from rune.adapters.sqlite.stores import SqliteStores
from rune.ports.retention import Rule
from rune.testing.harness import VirtualClock

async def collect():
    stores = SqliteStores(Path(sys.argv[1]), VirtualClock())
    stores.database.start()
    await stores.retention.collect([Rule(keep=10)], int(sys.argv[2]), progress=step)
    await stores.journal.close()

def step(_):
    print("+", flush=True)
    sys.stdin.readline()

asyncio.run(collect())
"""


def row_counts(path: Path) -> dict[str, int]:
    """Return the number of rows by table."""
    with sqlite3.connect(path) as db:
        found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    db.close()
    return found


def partial_executions(path: Path) -> list[str]:
    """Return executions that are only partly removed; rows of a removed execution are allowed while it is noted."""
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = db.execute(
            "SELECT e.id FROM execution e WHERE (SELECT count(*) FROM fact WHERE execution = e.n) <> 4"
            " OR (SELECT count(*) FROM claim WHERE execution = e.n) <> 3"
            " UNION ALL SELECT 'facts of ' || execution FROM fact WHERE execution NOT IN"
            " (SELECT n FROM execution UNION SELECT n FROM removed)"
            " UNION ALL SELECT 'claims of ' || execution FROM claim WHERE execution NOT IN"
            " (SELECT n FROM execution UNION SELECT n FROM removed)"
        ).fetchall()
    db.close()
    return [row[0] for row in rows]


def kill_collect(path: Path, steps: int) -> None:
    """Run a collection for the given number of steps, then kill it."""
    with subprocess.Popen(
        [sys.executable, "-c", COLLECT_SCRIPT, str(path), str(NOW)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline(), "the collection ended before the kill"
            process.stdin.write(b"\n")
            process.stdin.flush()
        process.kill()
        assert process.wait() == -signal.SIGKILL


class TestRetention:
    @async_test
    async def test_h_i13_removing_history_shrinks_the_file(self, tmp_path: Path) -> None:
        """Fails if the file is created without `auto_vacuum`."""
        fill(tmp_path / "rune.db", 20_000, ended_by=NOW - HOUR)
        async with sqlite_stores(tmp_path) as stores:
            done = await stores.retention.collect([Rule(keep=100)], NOW)
            assert done.executions == 19_900
            assert done.bytes_before > 20_000_000
            assert done.bytes_after < done.bytes_before * 0.05
            assert (tmp_path / "rune.db").stat().st_size <= done.bytes_after
            assert (tmp_path / "rune.db-wal").stat().st_size == 0
        assert partial_executions(tmp_path / "rune.db") == []
        assert row_counts(tmp_path / "rune.db") == {
            **dict.fromkeys(TABLES, 0),
            "execution": 100,
            "fact": 400,
            "claim": 300,
        }

    @async_test
    async def test_reader_keeps_its_snapshot_during_collect(self, tmp_path: Path) -> None:
        fill(tmp_path / "rune.db", 2_000, ended_by=NOW - HOUR)
        async with sqlite_stores(tmp_path) as stores:
            reader = sqlite3.connect(tmp_path / "rune.db", isolation_level=None)
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM fact").fetchone() == (8_000,)
            await stores.retention.collect([ALL], NOW)
            assert reader.execute("SELECT count(*) FROM fact").fetchone() == (8_000,)
            reader.execute("COMMIT")
            assert reader.execute("SELECT count(*) FROM fact").fetchone() == (0,)
            reader.close()
            assert (await stores.retention.collect([ALL], NOW)).bytes_after < 300_000

    @async_test
    async def test_file_without_auto_vacuum_shrinks_after_vacuum(self, tmp_path: Path) -> None:
        fill(tmp_path / "rune.db", 2_000, ended_by=NOW - HOUR)
        with sqlite3.connect(tmp_path / "rune.db", isolation_level=None) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("PRAGMA auto_vacuum = NONE")
            db.execute("VACUUM")
        db.close()
        async with sqlite_stores(tmp_path) as stores:
            done = await stores.retention.collect([Rule(keep=1_000)], NOW)
            assert not done.shrinks
            assert done.bytes_after > done.bytes_before * 0.9
            before, after = await stores.retention.vacuum()
            assert after < before * 0.7
            done = await stores.retention.collect([Rule(keep=10)], NOW)
            assert done.shrinks
            assert done.bytes_after < after * 0.3
        assert row_counts(tmp_path / "rune.db")["execution"] == 10


def test_killed_collect_leaves_each_execution_whole_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    fill(path, 20_000, ended_by=NOW - HOUR)
    for steps in (1, 2, 4, 8, 16):
        kill_collect(path, steps)
        assert partial_executions(path) == []
    remaining = row_counts(path)["execution"]
    assert 10 <= remaining < 20_000

    async def finish() -> None:
        async with sqlite_stores(tmp_path) as stores:
            assert (await stores.retention.collect([Rule(keep=10)], NOW)).executions == remaining - 10

    asyncio.run(finish())
    assert partial_executions(path) == []
    assert row_counts(path)["execution"] == 10


def test_next_collect_finishes_killed_removal_of_large_execution(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    fill(path, 11, ended_by=NOW - HOUR)
    with sqlite3.connect(path) as db:
        db.executemany(
            "INSERT INTO fact VALUES (1, 1, 9, ?, 0, 0, 0, ?)",
            [(number.to_bytes(4, "big"), b"x" * 100) for number in range(200_000)],
        )
    db.close()
    kill_collect(path, 4)
    found = row_counts(path)
    assert (found["execution"], found["removed"]) == (10, 1)
    assert 40 < found["fact"] < 200_044
    assert partial_executions(path) == []

    async def finish() -> None:
        async with sqlite_stores(tmp_path) as stores:
            done = await stores.retention.collect([], NOW)
            assert (done.executions, done.facts) == (0, found["fact"] - 40)
            assert done.longest_ms < 1_000

    asyncio.run(finish())
    assert row_counts(path) == {**dict.fromkeys(TABLES, 0), "execution": 10, "fact": 40, "claim": 30}
