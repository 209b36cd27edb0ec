"""Ended executions of a size that an engine would need minutes for, written with the row code of the embedded store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rune.adapters.sqlite.database import Rows, Start, write_rows, write_starts
from rune.adapters.sqlite.schema import migrate
from rune.codec.facts import encode_fact, fact_columns
from rune.core.definition.model import canonical
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.testing.harness import compiled
from tests.support.documents import document, node

FAILED_EVERY = 250
CODES = ("HTTP_TIMEOUT", "HTTP_STATUS", "BAD_ROW")
WIDE: dict[str, Any] = document(
    [
        node("in", "input"),
        node("s", "split", {"input_array": "{{ $trigger.items }}"}),
        node("fetch", "noop"),
        node("all", "aggregator"),
    ],
    "in>s",
    "s>fetch",
    "fetch>all",
    id="wide",
)


def wide_graph(nodes: int, width: int = 40) -> dict[str, Any]:
    """A workflow in layers of `width` nodes, of which some have two predecessors."""
    ids = [f"n{index}" for index in range(nodes)]
    pairs = [f"n{max(0, index - width)}>n{index}" for index in range(1, nodes)]
    more = [f"n{index - width + 1}>n{index}" for index in range(width + 1, nodes, 4)]
    return document(
        [node(each, "input" if each == "n0" else "noop") for each in ids],
        *dict.fromkeys(pairs + more),
        id=f"graph-{nodes}",
    )


def large_document(nodes: int) -> str:
    """The text of a workflow in YAML whose nodes form a binary tree."""
    made = ["  - id: n0\n    type: input\n"]
    made += [
        f"  - id: n{at}\n    type: log\n"
        f"    parameters: {{ message: 'number {at} of many, with a text of some words' }}\n"
        for at in range(1, nodes)
    ]
    edges = [f"  - {{ src: n{(at - 1) // 2}, dst: n{at} }}\n" for at in range(1, nodes)]
    return f"id: large\nnodes:\n{''.join(made)}edges:\n{''.join(edges)}"


def _facts(plan: Plan, items: int, now: int, failed_every: int) -> Iterator[Fact]:
    start, split, fetch, gather = (plan.index[name] for name in ("in", "s", "fetch", "all"))
    yield NodeResult(start, (), now, "ok", value=Inline(b"{}"))
    yield NodeResult(split, (), now, "ok", items=items)
    for item in range(items):
        at = now + 2 + item // 100
        where, began = (split, item), at - item % 50
        if item % failed_every == 7:
            failure = Error(CODES[item % len(CODES)], f"row {item}")
            yield NodeResult(fetch, where, at, "failed", failure=failure, began=began)
        else:
            yield NodeResult(fetch, where, at, "ok", value=Inline(b'{"id": 7}'), began=began)
    yield NodeResult(gather, (), now + 2 + items // 100, "ok", value=Inline(b"[]"))
    yield ExecutionEnded(now + 3 + items // 100, "completed")


OPEN: dict[str, Any] = document(
    [
        node("in", "input"),
        node("s", "split", {"input_array": "{{ $trigger.items }}"}),
        node("fetch", "noop"),
        node("rest", "wait", {"amount": 1, "unit": "hours"}),
        node("all", "aggregator"),
    ],
    "in>s",
    "s>fetch",
    "fetch>rest",
    "rest>all",
    id="open",
)
WAITING = 1_000
"""Items of an execution of `OPEN` that have not ended: a full window."""


def _open_facts(plan: Plan, items: int, now: int) -> Iterator[Fact]:
    start, split, fetch, rest = (plan.index[name] for name in ("in", "s", "fetch", "rest"))
    yield NodeResult(start, (), now, "ok", value=Inline(b"{}"))
    yield NodeResult(split, (), now, "ok", items=items)
    for item in range(items):
        at, where = now + 2 + item // 100, (split, item)
        yield NodeResult(fetch, where, at, "ok", value=Inline(b'{"id": 7}'))
        yield NodeSuspended(rest, where, at, 1, at + 3_600_000)
        if item < items - WAITING:
            yield NodeResult(rest, where, at, "ok", value=Inline(b'{"id": 7}'))


def write_items(home: Path, items: int, failed_every: int = FAILED_EVERY) -> str:
    """Write an ended execution of `WIDE` into the database of a server that does not run; return its id."""
    plan = compiled(WIDE)
    now = time.time_ns() // 1_000_000 - 600_000
    return _write(home, plan, now, b'{"items": []}', list(_facts(plan, items, now, failed_every)))


def write_open_items(home: Path, items: int) -> str:
    """Write an execution of `OPEN` into the database of a server that does not run, of which WAITING items wait for an
    hour; return its id."""
    plan = compiled(OPEN)
    now = time.time_ns() // 1_000_000 - 60_000
    payload = b'{"items": [' + b"1," * (items - 1) + b"1]}"
    return _write(home, plan, now, payload, list(_open_facts(plan, items, now)))


def _write(home: Path, plan: Plan, now: int, payload: bytes, whole: list[Fact]) -> str:
    db = sqlite3.connect(home / "rune.db", isolation_level=None)
    migrate(db)
    (number,) = db.execute("SELECT coalesce(max(n), 0) + 1 FROM execution").fetchone()
    id = f"x{now:012x}{number:014x}"
    accepted = ExecutionRecord(
        id=id, workflow=plan.definition.id, hash=plan.hash, at=now, input=Inline(payload)
    )
    rows = [
        (number, *fact_columns(each), number * 4 + at, 0, encode_fact(each)) for at, each in enumerate(whole)
    ]
    end = whole[-1] if isinstance(whole[-1], ExecutionEnded) else None
    db.execute("BEGIN")
    db.execute("INSERT OR IGNORE INTO definition VALUES (?, ?)", (plan.hash, canonical(plan.definition)))
    row = (number, id, accepted.workflow, plan.hash, now, now, msgspec.msgpack.encode(accepted))
    write_starts(db, [Start(row)])
    write_rows(db, [Rows(id, rows, [], end)])
    db.execute("COMMIT")
    db.close()
    return id
