"""Compares the PostgreSQL journal with a bare client that inserts the same rows, in the same run.

    python bench/postgres.py [postgresql://…]

Without a URL a temporary server is started on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import asyncpg  # type: ignore[import-untyped]

from bench.bare import INSERT
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.journal_writes import Columns, arrays, columns
from rune.adapters.postgres.schema import migrate
from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline
from rune.ports.journal import ExecutionRecord

CALLERS = 200
GROUP = 256
BARE = """
CREATE TABLE IF NOT EXISTS bare (LIKE fact INCLUDING ALL);
TRUNCATE bare;
"""


def fact(node: int) -> NodeResult:
    return NodeResult(node, (), 1_700_000_000_000, "ok", value=Inline(b'{"value": "' + b"x" * 100 + b'"}'))


async def bare(dsn: str, rows: int, lanes: int) -> float:
    """Return the rows per second of a client that only inserts, in groups."""
    ready: list[tuple[int, Columns]] = [
        (caller, columns(fact(node))) for node in range(rows // CALLERS) for caller in range(CALLERS)
    ]
    groups = [ready[start : start + GROUP] for start in range(0, len(ready), GROUP)]
    pool = await asyncpg.create_pool(dsn, min_size=lanes, max_size=lanes)
    await pool.execute(BARE)

    async def lane() -> None:
        async with pool.acquire() as connection:
            while groups:
                group = groups.pop()
                await connection.execute(
                    INSERT, [each for each, _ in group], *arrays([row for _, row in group])
                )

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    took = time.perf_counter() - began
    await pool.close()
    return len(ready) / took


async def journal(found: PostgresJournal, rows: int, executions: int, name: str, width: int = 1) -> float:
    """Return the rows per second of concurrent callers of `record`, each recording `width` facts at a time."""
    for number in range(executions):
        await found.accept(
            ExecutionRecord(id=f"{name}{number}", workflow="w", hash="h", at=1, input=Inline(b"{}"))
        )
    each = rows // CALLERS

    async def caller(number: int) -> None:
        execution = f"{name}{number % executions}"
        first = number // executions * each
        for node in range(first, first + each, width):
            mine = [fact(node + more) for more in range(width)]
            recorded = await found.record(execution, mine)
            assert recorded[0] is mine[0]

    began = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return each * CALLERS / (time.perf_counter() - began)


async def starts(found: PostgresJournal, count: int) -> float:
    """Return the starts per second."""

    async def caller(number: int) -> None:
        for each in range(count // CALLERS):
            id = f"s{number}-{each}"
            await found.accept(
                ExecutionRecord(id=id, workflow="w", hash="h", at=1, input=Inline(b"{}"), key=id)
            )

    began = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return count / (time.perf_counter() - began)


async def idle(found: PostgresJournal, count: int) -> list[float]:
    """Return the sorted durations in ms of sequential records without other load."""
    await found.accept(ExecutionRecord(id="idle", workflow="w", hash="h", at=1, input=Inline(b"{}")))
    times = []
    for node in range(count):
        mine = fact(node)
        began = time.perf_counter()
        await found.record("idle", [mine])
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


async def bare_idle(dsn: str, count: int) -> list[float]:
    """Return the sorted durations in ms of bare single-row inserts."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(BARE)
    times = []
    for node in range(count):
        row = arrays([columns(fact(node))])
        began = time.perf_counter()
        await connection.execute(INSERT, [1], *row)
        times.append((time.perf_counter() - began) * 1000)
    await connection.close()
    return sorted(times)


async def measure(dsn: str, rows: int) -> None:
    await migrate(dsn)
    names = (
        "bare insert, 1 lane",
        "bare insert, 2 lanes",
        "journal, 200 executions",
        "journal, 1 execution",
        "journal, 10 facts a run",
    )
    rates: dict[str, list[float]] = {name: [] for name in names}
    async with postgres(dsn) as found:
        for turn in range(3):
            rates[names[0]].append(await bare(dsn, rows, 1))
            rates[names[1]].append(await bare(dsn, rows, 2))
            rates[names[2]].append(await journal(found.journal, rows, CALLERS, f"a{turn}-"))
            rates[names[3]].append(await journal(found.journal, rows, 1, f"b{turn}-"))
            rates[names[4]].append(await journal(found.journal, rows, CALLERS, f"c{turn}-", width=10))
        for name, values in rates.items():
            each = ", ".join(f"{value:,.0f}" for value in values)
            print(f"{name:26} {statistics.median(values):8,.0f} rows/s   ({each})")
        print(f"{'starts with a key':26} {await starts(found.journal, rows // 4):8,.0f} starts/s")
        alone = {"idle record": await idle(found.journal, 500), "idle bare insert": await bare_idle(dsn, 500)}
        for name, times in alone.items():
            print(f"{name:26} p50 {times[250]:.2f} ms   p99 {times[495]:.2f} ms")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rows", type=int, default=40_000)
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        dsn: Any = given.dsn
        if dsn is None:
            from tests.support.services.postgres import new_server  # noqa: PLC0415 - needed only without a URL

            server = new_server(Path(tempfile.gettempdir()))
            stack.callback(server.stop)
            dsn = server.create("bench")
        try:
            import uvloop  # noqa: PLC0415

            runner: Any = uvloop.run
        except ImportError:
            runner = asyncio.run
        runner(measure(dsn, given.rows))


if __name__ == "__main__":
    main()
