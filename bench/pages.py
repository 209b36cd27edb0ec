"""Pages of an API over a full file: lists among many executions, and the node runs of one with many items.

    python bench/pages.py [--executions 1000000] [--items 100000] [--rounds 20]

The file is written without an engine, by the adapter's own row code. A page is asked for over HTTP, one at a time; its
time is what the asker waits, and beside it what the server's processor worked.
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

# This folder has a file that is called like a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parents[1] / "src")
sys.path.append(str(Path(__file__).resolve().parent))

import msgspec  # noqa: E402
from api import answer, busy, started  # noqa: E402

from rune.adapters.sqlite.database import (  # noqa: E402
    Rows,
    Start,
    migrate,
    write_rows,
    write_starts,
)
from rune.bench import baseline  # noqa: E402
from rune.codec.facts import Inline, encode_fact, fact_columns  # noqa: E402
from rune.core.definition.model import canonical  # noqa: E402
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult  # noqa: E402
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
    """What an execution with many items leaves."""
    s, c, big, small = (plan.index[name] for name in ("s", "c", "big", "small"))
    yield NodeResult(s, (), NOW, "ok", items=items)
    for item in range(items):
        taken = item > 9
        yield NodeResult(c, (s, item), NOW + 1, "ok", outlet=str(taken).lower(), value=Inline(b"true"))
        yield NodeResult(big if taken else small, (s, item), NOW + 2, "ok", value=Inline(b'{"id": 7}'))
    yield ExecutionEnded(NOW + 3, "completed")


def fill(path: Path, executions: int, items: int) -> str:
    """Write the file; the id of the one with many items."""
    baseline.fill(path, executions * 9 // 10, ended_by=NOW - 10**9)
    baseline.fill(path, executions // 10, ended_by=NOW - 10**6, workflow="other", status="failed")
    plan = compiled(WIDE)
    id = f"x{NOW:012x}{0:014x}"
    accepted = ExecutionRecord(id=id, workflow="wide", hash=plan.hash, at=NOW, input=b'{"items": []}')
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


async def ask(port: int, pid: int, path: str, rounds: int) -> tuple[str, float, float, bytes]:
    """A page: how many ms the first one took, the median of the rest, and the processor time of one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    times: list[float] = []
    before, body = busy(pid), b""
    for _ in range(rounds):
        began = time.perf_counter()
        writer.write(f"GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        status, body = await answer(reader)
        assert status == 200, body
        times.append((time.perf_counter() - began) * 1_000)
    writer.close()
    worked = (busy(pid) - before) / rounds * 1_000
    return f"first {times[0]:.1f} ms, then {statistics.median(times):.1f} ms", worked, times[0], body


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as home:
        began = time.perf_counter()
        wide = fill(Path(home) / "rune.db", options.executions, options.items)
        print(f"{options.executions:,} executions, written in {time.perf_counter() - began:.0f} s")
        with started(home) as (port, pid):
            cursor = ""
            asked = [
                "",
                "status=failed",
                "status=completed",
                "status=running",
                "workflow=full",
                "workflow=nobody",
            ]
            for query in [*asked, "workflow=full&status=failed"]:
                told, worked, _, body = await ask(port, pid, f"/executions?limit=50&{query}", options.rounds)
                count = len(json.loads(body)["executions"])
                print(
                    f"list {query or 'of all'}: {count} of them, {told}, {worked:.1f} ms of the server's time"
                )
            for query in ("", "status=failed", "node=s", "lineage=s:5"):
                path = f"/executions/{wide}/nodes?limit=50&{query}"
                told, worked, _, body = await ask(port, pid, path, options.rounds)
                page = json.loads(body)
                cursor = cursor or page["next"]
                print(
                    f"node runs {query}: {len(page['nodes'])}, {told}, {worked:.1f} ms of the server's time"
                )
            path = f"/executions/{wide}/nodes?limit=50&cursor={cursor}"
            told, worked, _, body = await ask(port, pid, path, options.rounds)
            print(f"node runs, second page: {told}, {worked:.1f} ms of the server's time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(main(parser.parse_args()))
