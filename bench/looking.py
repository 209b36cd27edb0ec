"""Measures what the web interface reads: searches and figures over many executions, the graph of one with many items.

    python bench/looking.py [--executions 1000000] [--items 100000] [--rounds 10] [--postgres [postgresql://…]]

The rows are written without an engine, as of one day. One execution in ten failed, one in a hundred has a label, one
in a thousand was started by another principal. Times include the statements and the decoding, not HTTP; the overview is
CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

# This folder contains a file with the name of a standard library module.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import msgspec  # noqa: E402

from rune.adapters.rows import end_terms, start_terms  # noqa: E402
from rune.adapters.sqlite.database import Database  # noqa: E402
from rune.adapters.sqlite.schema import migrate  # noqa: E402
from rune.adapters.sqlite.stores import SqliteCounts, SqliteIndex  # noqa: E402
from rune.core.execution.fact import ExecutionEnded, NodeResult  # noqa: E402
from rune.core.execution.outcome import Error  # noqa: E402
from rune.core.execution.stored_value import Inline  # noqa: E402
from rune.ports.journal import ExecutionRecord, StoredFact  # noqa: E402
from rune.ports.queries import CountStore, ExecutionFilter  # noqa: E402
from rune.runtime.queries.overview import Overview, item_bytes  # noqa: E402
from rune.runtime.queries.reader import ExecutionIndex  # noqa: E402
from rune.server.views.graphs import graph_view  # noqa: E402
from rune.server.views.statistics import StatisticsCache  # noqa: E402
from rune.testing.harness import compiled  # noqa: E402

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
PACK = msgspec.msgpack.Encoder()
WORKFLOWS = 20
WIDE: dict[str, Any] = {
    "id": "wide",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "c", "type": "conditional", "parameters": {"expression": "$item > 9"}},
        {"id": "big", "type": "noop"},
        {"id": "small", "type": "noop"},
    ],
    "edges": [
        {"src": "in", "dst": "s"},
        {"src": "s", "dst": "c"},
        {"src": "c", "dst": "big", "label": "true"},
        {"src": "c", "dst": "small", "label": "false"},
    ],
}

Row = tuple[int, str, str, str, str, int, int, bytes, bytes]
Batch = tuple[list[Row], list[tuple[str, int]]]
Opened = tuple[ExecutionIndex, CountStore]


class FixedClock:
    """A clock that stands still."""

    def now(self) -> int:
        return NOW

    async def sleep_until(self, when: int | None) -> None:
        await asyncio.Event().wait()

    def wake(self) -> None:
        """Nothing sleeps."""


def batches(executions: int) -> Iterator[Batch]:
    """Yield rows of executions of one day, and their terms."""
    interval = max(1, DAY_MS // executions)
    for begin in range(0, executions, 10_000):
        rows: list[Row] = []
        terms: list[tuple[str, int]] = []
        for n in range(begin + 1, min(begin + 10_000, executions) + 1):
            at = NOW - (executions - n) * interval - 1_000
            failed = n % 10 == 0
            error = Error(f"CODE_{n % 1_000 // 10}", "it failed") if failed else None
            end = ExecutionEnded(at + 500, "failed" if failed else "completed", error)
            record = ExecutionRecord(
                id=f"x{n:026x}",
                workflow=f"flow-{n % WORKFLOWS}",
                hash=f"hash-{n % WORKFLOWS}",
                at=at,
                input=Inline(b'{"order": 1}'),
                labels={"customer": str(n)} if n % 100 == 0 else {},
                principal="key:k1" if n % 1_000 == 0 else "local",
            )
            body, ending = PACK.encode(record), PACK.encode(end)
            rows.append((n, record.id, record.workflow, record.hash, end.status, at, at + 500, body, ending))
            terms += [(term, n) for term in (*start_terms(record), *end_terms(end))]
        yield rows, terms


@contextlib.asynccontextmanager
async def sqlite_index(executions: int) -> AsyncIterator[Opened]:
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as home:
        path = Path(home) / "rune.db"
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        migrate(db)
        for rows, terms in batches(executions):
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO execution (n, id, workflow, hash, status, at, ended_at, accepted, end)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            db.executemany("INSERT INTO execution_term (term, n) VALUES (?, ?)", terms)
            db.execute("COMMIT")
        db.close()
        database = Database(path)
        database.start()
        yield SqliteIndex(database), SqliteCounts(database)
        database.close()


@contextlib.asynccontextmanager
async def postgres_index(dsn: str, executions: int) -> AsyncIterator[Opened]:
    import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    from rune.adapters.postgres.schema import migrate as migrate_postgres  # noqa: PLC0415
    from rune.adapters.postgres.stores import PostgresCounts, postgres  # noqa: PLC0415

    await migrate_postgres(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET synchronous_commit = off")
    names = ["n", "id", "workflow", "hash", "status", "at", "ended_at", "accepted", "ending"]
    # Numbers are generated, so they are given by the order of the copy.
    for rows, terms in batches(executions):
        await connection.copy_records_to_table(
            "execution", records=[row[1:] for row in rows], columns=names[1:]
        )
        await connection.copy_records_to_table("execution_term", records=terms, columns=["term", "n"])
    await connection.execute("ANALYZE")
    await connection.close()
    async with postgres(dsn) as opened:
        yield opened.index, PostgresCounts(opened.database)


async def measure(name: str, rounds: int, work: Callable[[], Awaitable[Any]]) -> None:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1_000)
    print(f"  {name}: first {times[0]:.1f} ms, median {statistics.median(times):.1f} ms", flush=True)


async def measure_index(index: ExecutionIndex, counts: CountStore, executions: int, rounds: int) -> None:
    rare = f"{executions // 2 // 100 * 100}"
    middle = NOW - DAY_MS // 2
    filters = {
        "all": ExecutionFilter(),
        "status failed": ExecutionFilter(statuses=("failed", "halted")),
        "workflow and status": ExecutionFilter(workflow="flow-3", statuses=("failed",)),
        "label": ExecutionFilter(labels={"customer": rare}),
        "code": ExecutionFilter(code="CODE_7"),
        "code and workflow": ExecutionFilter(code="CODE_7", workflow="flow-10"),
        "principal": ExecutionFilter(principal="key:k1"),
        "period": ExecutionFilter(since=middle, until=middle + 3_600_000),
        "period, status, code": ExecutionFilter(
            since=middle, until=middle + DAY_MS, statuses=("failed",), code="CODE_7"
        ),
        "scope": ExecutionFilter(scopes=("flow-1*",)),
        "nothing": ExecutionFilter(labels={"customer": "none"}),
    }
    for name, wanted in filters.items():
        await measure(f"page of 50, {name}", rounds, functools.partial(index.search, wanted, limit=50))
    await measure("count, status failed", rounds, lambda: index.count(filters["status failed"]))
    statistics_of = index.statistics

    def a_day() -> Awaitable[Any]:
        # A new cache each time: what a server keeps in memory is not used.
        return StatisticsCache(statistics_of, counts, FixedClock()).series(NOW - DAY_MS, NOW + 1, 3_600_000)

    await measure("figures of a day in hours, counted anew", min(rounds, 3), a_day)
    filling = StatisticsCache(statistics_of, counts, FixedClock())
    await measure("count a day in advance", 1, filling.fill)
    await measure("figures of a day in hours, counted in advance", rounds, a_day)
    await measure("open", rounds, statistics_of.open)
    await measure("20 newest of a workflow", rounds, lambda: statistics_of.recent("flow-3", 20))
    await measure("200 durations of a workflow", rounds, lambda: statistics_of.durations("flow-3", 200))


def measure_overview(items: int) -> None:
    plan = compiled(WIDE)
    s, c, big = (plan.index[name] for name in ("s", "c", "big"))
    overview = Overview(plan, NOW)
    facts = [NodeResult(s, (), NOW, "ok", items=items)]
    for item in range(items):
        facts.append(NodeResult(c, (s, item), NOW + 1, "ok", outlet="true"))
        facts.append(NodeResult(big, (s, item), NOW + 2, "failed" if item % 7 == 0 else "ok"))
    stored = [StoredFact(number, fact) for number, fact in enumerate(facts, 1)]
    began = time.process_time()
    for each in stored:
        overview.add(each)
    print(f"  fold {len(stored):,} facts: {(time.process_time() - began) * 1_000:.0f} ms")
    table = overview.items_of(s)
    assert table is not None
    for name, work in {
        "graph": lambda: graph_view(overview),
        "items by state": lambda: item_bytes(overview, table, "state"),
        "items by code": lambda: item_bytes(overview, table, "code"),
        "items by duration": lambda: item_bytes(overview, table, "duration"),
        "encode": overview.encode,
    }.items():
        times = []
        for _ in range(5):
            began = time.process_time()
            overview.number += 1  # a running execution: nothing is cached
            work()
            times.append((time.process_time() - began) * 1_000)
        print(f"  {name}: {statistics.median(times):.1f} ms")
    data = overview.encode()
    began = time.process_time()
    assert Overview.decode(plan, NOW, data) is not None
    print(f"  decode {len(data):,} bytes: {(time.process_time() - began) * 1_000:.1f} ms")


async def main(options: argparse.Namespace) -> None:
    print(f"overview of {options.items:,} items")
    measure_overview(options.items)
    async with contextlib.AsyncExitStack() as stack:
        if options.postgres is None:
            index, counts = await stack.enter_async_context(sqlite_index(options.executions))
        else:
            dsn = options.postgres
            if not dsn:
                from tests.support.services.postgres import new_server  # noqa: PLC0415 - needed only here

                started = new_server(Path(tempfile.gettempdir()))
                stack.callback(started.stop)
                dsn = started.create("looking")
            index, counts = await stack.enter_async_context(postgres_index(dsn, options.executions))
        print(f"{options.executions:,} executions")
        await measure_index(index, counts, options.executions, options.rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--postgres", nargs="?", const="", default=None)
    asyncio.run(main(parser.parse_args()))
