"""Measures API pages over a large database: lists of executions, and the node runs of one with many items.

    python bench/pages.py [--executions 1000000] [--items 100000] [--rounds 20]

The database is written without an engine, with the row code of the adapter. Pages are requested over HTTP one at a
time; the results are the response time and the CPU time of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# This folder contains a file with the name of a standard library module.
sys.path[0] = str(Path(__file__).resolve().parents[1] / "src")
sys.path.append(str(Path(__file__).resolve().parent))

import msgspec  # noqa: E402
from api import cpu_seconds, read_response, started  # noqa: E402

from rune.adapters.sqlite.database import Rows, Start, write_rows, write_starts  # noqa: E402
from rune.adapters.sqlite.schema import migrate  # noqa: E402
from rune.cli.bench import workloads  # noqa: E402
from rune.codec.facts import encode_fact, fact_columns  # noqa: E402
from rune.core.definition.model import canonical  # noqa: E402
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult  # noqa: E402
from rune.core.execution.stored_value import Inline  # noqa: E402
from rune.core.plan.model import Plan  # noqa: E402
from rune.ports.journal import ExecutionRecord  # noqa: E402
from rune.testing.harness import compiled  # noqa: E402

NOW = 1_800_000_000_000
WIDE = {
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


def facts(plan: Plan, items: int) -> Iterator[Fact]:
    """Yield the facts of an execution with many items."""
    s, c, big, small = (plan.index[name] for name in ("s", "c", "big", "small"))
    yield NodeResult(s, (), NOW, "ok", items=items)
    for item in range(items):
        taken = item > 9
        yield NodeResult(c, (s, item), NOW + 1, "ok", outlet=str(taken).lower(), value=Inline(b"true"))
        yield NodeResult(big if taken else small, (s, item), NOW + 2, "ok", value=Inline(b'{"id": 7}'))
    yield ExecutionEnded(NOW + 3, "completed")


def fill(path: Path, executions: int, items: int) -> str:
    """Write the database; return the id of the execution with many items."""
    workloads.fill(path, executions * 9 // 10, ended_by=NOW - 10**9)
    workloads.fill(path, executions // 10, ended_by=NOW - 10**6, workflow="other", status="failed")
    plan = compiled(WIDE)
    id = f"x{NOW:012x}{0:014x}"
    accepted = ExecutionRecord(id=id, workflow="wide", hash=plan.hash, at=NOW, input=Inline(b'{"items": []}'))
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db)
    (n,) = db.execute("SELECT max(n) + 1 FROM execution").fetchone()
    whole = list(facts(plan, items))
    rows = [(n, *fact_columns(each), n * 4 + i, 0, encode_fact(each)) for i, each in enumerate(whole)]
    db.execute("BEGIN")
    db.execute("INSERT INTO definition VALUES (?, ?)", (plan.hash, canonical(plan.definition)))
    write_starts(db, [Start((n, id, "wide", plan.hash, NOW, NOW, msgspec.msgpack.encode(accepted)))])
    end = whole[-1]
    assert isinstance(end, ExecutionEnded)
    write_rows(db, [Rows(id, rows, [], end)])
    db.execute("COMMIT")
    db.close()
    return id


async def get_page(port: int, pid: int, path: str, rounds: int) -> tuple[str, float, bytes]:
    """Request a page repeatedly; return the response times as text, the CPU ms per request, and the last body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    times: list[float] = []
    before, body = cpu_seconds(pid), b""
    for _ in range(rounds):
        began = time.perf_counter()
        writer.write(f"GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        status, body = await read_response(reader)
        assert status == 200, body
        times.append((time.perf_counter() - began) * 1_000)
    writer.close()
    cpu_ms = (cpu_seconds(pid) - before) / rounds * 1_000
    return f"first {times[0]:.1f} ms, then {statistics.median(times):.1f} ms", cpu_ms, body


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as home:
        began = time.perf_counter()
        wide = fill(Path(home) / "rune.db", options.executions, options.items)
        print(f"{options.executions:,} executions, written in {time.perf_counter() - began:.0f} s")
        with started(home) as (port, pid):
            cursor = ""
            queries = [
                "",
                "status=failed",
                "status=completed",
                "status=running",
                "workflow=full",
                "workflow=unknown",
            ]
            for query in [*queries, "workflow=full&status=failed"]:
                times, cpu_ms, body = await get_page(
                    port, pid, f"/executions?limit=50&{query}", options.rounds
                )
                count = len(json.loads(body)["executions"])
                print(f"list {query or 'of all'}: {count} results, {times}, {cpu_ms:.1f} ms of server CPU")
            for query in ("", "status=failed", "node=s", "lineage=s:5"):
                path = f"/executions/{wide}/nodes?limit=50&{query}"
                times, cpu_ms, body = await get_page(port, pid, path, options.rounds)
                page = json.loads(body)
                cursor = cursor or page["next"]
                print(f"node runs {query}: {len(page['nodes'])}, {times}, {cpu_ms:.1f} ms of server CPU")
            path = f"/executions/{wide}/nodes?limit=50&cursor={cursor}"
            times, cpu_ms, body = await get_page(port, pid, path, options.rounds)
            print(f"node runs, second page: {times}, {cpu_ms:.1f} ms of server CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(main(parser.parse_args()))
