"""Baselines without an engine: a loop that writes the same rows with the same durability, and filled databases.

The loop is the limit that measures compare with; a database full of ended executions is what retention is measured on.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from rune.adapters.sqlite.database import Rows, Start, migrate, write_rows, write_starts
from rune.codec.facts import Inline, encode_fact, fact_columns
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.ports.journal import ExecutionRecord

Status = Literal["completed", "failed", "halted", "cancelled"]

CONCURRENCY = 200
EXECUTIONS_PER_COMMIT = 2_000
NODES = 3
INPUT = b'{"order": 123456, "customer": "Ada Lovelace", "items": [{"sku": "A-1", "n": 2}, {"sku": "B-7", "n": 1}]}'
OUTPUT = (
    b'{"status": 200, "body": {"id": "ch_0123456789abcdef", "amount": 4200, "currency": "eur", "paid": true}}'
)
DEFINITION = b'{"id": "full"}'


def bare_rate(path: Path, *, nodes: int, claims: bool, per_commit: int, relaxed: bool = False) -> float:
    """Return the nodes per second of a loop that writes one fact, and optionally one claim, per node."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
    migrate(db)
    body = b"x" * 90
    began = time.perf_counter()
    for start in range(0, nodes, per_commit):
        group = []
        for i in range(start, min(start + per_commit, nodes)):
            fact = (i % CONCURRENCY, 1, i // CONCURRENCY, b"", 0, i, 0, body)
            claim = (i % CONCURRENCY, i // CONCURRENCY, b"", i, i)
            group.append(Rows("x", [fact], [claim] if claims else [], None))
        db.execute("BEGIN IMMEDIATE")
        write_rows(db, group)
        db.execute("COMMIT")
    rate = nodes / (time.perf_counter() - began)
    db.close()
    return rate


def fill(
    path: Path, executions: int, *, ended_by: int, workflow: str = "full", status: Status = "completed"
) -> None:
    """Add ended executions, one per second, the last one ended at `ended_by`.

    Each has a start, a claim and a result for each of three nodes, and an end.
    """
    hash = hashlib.sha256(workflow.encode()).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = OFF"):
            db.execute(f"PRAGMA {pragma}")
        migrate(db)
        (first,) = db.execute("SELECT coalesce(max(n), 0) + 1 FROM execution").fetchone()
        db.execute("INSERT OR IGNORE INTO definition VALUES (?, ?)", (hash, DEFINITION))
        for begin in range(0, executions, EXECUTIONS_PER_COMMIT):
            span = range(begin, min(begin + EXECUTIONS_PER_COMMIT, executions))
            moments = [(first + i, ended_by - (executions - 1 - i) * 1_000) for i in span]
            _write(db, list(_build_rows(moments, workflow, hash, status)))
    finally:
        db.close()


def _write(db: sqlite3.Connection, executions: list[tuple[Start, Rows]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    write_starts(db, [start for start, _ in executions])
    write_rows(db, [rows for _, rows in executions])
    db.execute("COMMIT")


def _build_rows(
    moments: list[tuple[int, int]], workflow: str, hash: str, status: Status
) -> Iterator[tuple[Start, Rows]]:
    for n, ended_at in moments:
        at = ended_at - 40
        id = f"x{at:012x}{n:014x}"
        accepted = ExecutionRecord(id=id, workflow=workflow, hash=hash, at=at, input=INPUT)
        end = ExecutionEnded(ended_at, status)
        facts = [
            NodeResult(node, (), at + 10 * node, "ok", value=Inline(OUTPUT)) for node in range(1, NODES + 1)
        ]
        whole: list[Fact] = [*facts, end]
        rows = [
            (n, *fact_columns(fact), n * (NODES + 1) + i, 0, encode_fact(fact))
            for i, fact in enumerate(whole)
        ]
        claims = [(n, fact.node, b"", n, fact.at) for fact in facts]
        row = (n, id, workflow, hash, at, at, msgspec.msgpack.encode(accepted))
        yield Start(row), Rows(execution=id, facts=rows, claims=claims, end=end)
