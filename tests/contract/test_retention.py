"""Retention of the embedded backend: the contract, the file itself, a kill in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rune.adapters.sqlite.workflows import SqliteWorkflows
from rune.bench.baseline import fill
from rune.ports.retention import Rule
from tests.contract.suites.retention import ALL, HOUR, NOW, Kept, RetentionContract
from tests.contract.suites.scenario import scenario
from tests.contract.test_embedded import left_on_disk, opened

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("execution", "fact", "claim", "blob", "needs", "dead_letter", "removed")

KILLED = """
import asyncio, sys
from pathlib import Path
from rune.adapters.sqlite.stores import SqliteStores
from rune.ports.retention import Rule
from rune.testing.clock import VirtualClock

async def collect():
    embedded = SqliteStores(Path(sys.argv[1]), VirtualClock())
    embedded.database.start()
    await embedded.retention.collect([Rule(keep=10)], int(sys.argv[2]), progress=step)
    await embedded.journal.close()

def step(_):
    print("+", flush=True)
    sys.stdin.readline()

asyncio.run(collect())
"""


def counts(path: Path) -> dict[str, int]:
    """Rows by table."""
    with sqlite3.connect(path) as db:
        found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    db.close()
    return found


def torn(path: Path) -> list[str]:
    """Executions that are neither whole nor gone; of those that are off the list only noted ones may have rows."""
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


def kill(path: Path, steps: int) -> None:
    """A collection that is let go on so many times and dies in the act that follows."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(NOW)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline(), "it ended by itself"
            process.stdin.write(b"\n")
            process.stdin.flush()
        process.kill()
        assert process.wait() == -signal.SIGKILL


class TestRetention(RetentionContract):
    @asynccontextmanager
    async def make_stores(self, folder: Path) -> AsyncIterator[Kept]:
        async with opened(folder) as embedded:
            yield Kept(embedded.journal, embedded.blob, embedded.retention)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)

    @scenario
    async def test_a_stored_version_keeps_its_definition(self, folder: Path) -> None:
        async with opened(folder) as embedded:
            await SqliteWorkflows(embedded.database).deploy(b'{"id": "w"}', "stored", "w", NOW)
        async with opened(folder) as embedded:
            assert (await embedded.retention.collect([ALL], NOW)).definitions == 0
            assert await embedded.journal.definition("stored") == b'{"id": "w"}'

    @scenario
    async def test_h_i13_removing_history_shrinks_the_file(self, folder: Path) -> None:
        """Red if the file is made without `auto_vacuum`."""
        fill(folder / "rune.db", 20_000, ended_by=NOW - HOUR)
        async with opened(folder) as embedded:
            done = await embedded.retention.collect([Rule(keep=100)], NOW)
            assert done.executions == 19_900
            assert done.bytes_before > 20_000_000
            assert done.bytes_after < done.bytes_before * 0.05
            assert (folder / "rune.db").stat().st_size <= done.bytes_after
            assert (folder / "rune.db-wal").stat().st_size == 0
        assert torn(folder / "rune.db") == []
        assert counts(folder / "rune.db") == {
            **dict.fromkeys(TABLES, 0),
            "execution": 100,
            "fact": 400,
            "claim": 300,
        }

    @scenario
    async def test_somebody_who_reads_meanwhile_sees_what_was_there(self, folder: Path) -> None:
        fill(folder / "rune.db", 2_000, ended_by=NOW - HOUR)
        async with opened(folder) as embedded:
            look = sqlite3.connect(folder / "rune.db", isolation_level=None)
            look.execute("BEGIN")
            assert look.execute("SELECT count(*) FROM fact").fetchone() == (8_000,)
            await embedded.retention.collect([ALL], NOW)
            assert look.execute("SELECT count(*) FROM fact").fetchone() == (8_000,)
            look.execute("COMMIT")
            assert look.execute("SELECT count(*) FROM fact").fetchone() == (0,)
            look.close()
            assert (await embedded.retention.collect([ALL], NOW)).bytes_after < 200_000

    @scenario
    async def test_a_file_that_cannot_shrink_says_so_until_it_is_written_anew(self, folder: Path) -> None:
        fill(folder / "rune.db", 2_000, ended_by=NOW - HOUR)
        with sqlite3.connect(folder / "rune.db", isolation_level=None) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("PRAGMA auto_vacuum = NONE")
            db.execute("VACUUM")
        db.close()
        async with opened(folder) as embedded:
            done = await embedded.retention.collect([Rule(keep=1_000)], NOW)
            assert not done.shrinks
            assert done.bytes_after > done.bytes_before * 0.9
            before, after = await embedded.retention.vacuum()
            assert after < before * 0.7
            done = await embedded.retention.collect([Rule(keep=10)], NOW)
            assert done.shrinks
            assert done.bytes_after < after * 0.3
        assert counts(folder / "rune.db")["execution"] == 10


def test_killed_at_any_moment_each_execution_is_whole_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    fill(path, 20_000, ended_by=NOW - HOUR)
    for steps in (1, 2, 4, 8, 16):
        kill(path, steps)
        assert torn(path) == []
    left = counts(path)["execution"]
    assert 10 <= left < 20_000

    async def finish() -> None:
        async with opened(tmp_path) as embedded:
            assert (await embedded.retention.collect([Rule(keep=10)], NOW)).executions == left - 10

    asyncio.run(finish())
    assert torn(path) == []
    assert counts(path)["execution"] == 10


def test_killed_while_a_large_one_goes_it_is_gone_and_the_rest_follows(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    fill(path, 11, ended_by=NOW - HOUR)
    with sqlite3.connect(path) as db:
        db.executemany(
            "INSERT INTO fact VALUES (1, 1, 9, ?, 0, 0, 0, ?)",
            [(number.to_bytes(4, "big"), b"x" * 100) for number in range(200_000)],
        )
    db.close()
    kill(path, 4)
    found = counts(path)
    assert (found["execution"], found["removed"]) == (10, 1)
    assert 40 < found["fact"] < 200_044
    assert torn(path) == []

    async def finish() -> None:
        async with opened(tmp_path) as embedded:
            done = await embedded.retention.collect([], NOW)
            assert (done.executions, done.facts) == (0, found["fact"] - 40)
            assert done.longest_ms < 1_000

    asyncio.run(finish())
    assert counts(path) == {**dict.fromkeys(TABLES, 0), "execution": 10, "fact": 40, "claim": 30}
