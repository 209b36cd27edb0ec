"""What the measures of `rune bench` share: workflows, baselines without an engine, and reports.

A baseline is a loop that writes the same rows with the same durability. The loop is the limit that measures compare
with; a database full of ended executions is what retention is measured on.
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec

from rune.adapters.sqlite.database import Rows, Start, write_rows, write_starts
from rune.adapters.sqlite.schema import migrate
from rune.bootstrap.interpreter import describe
from rune.cli.bench import jobs
from rune.codec.facts import encode_fact, fact_columns
from rune.core.definition.parser import parse_document
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.core.execution.stored_value import Inline
from rune.core.node_type import Catalogue
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.runtime.engine import Engine
from rune.settings import Settings

Status = Literal["completed", "failed", "halted", "cancelled"]

CONCURRENCY = 200
EXECUTIONS_PER_COMMIT = 2_000
NODES = 3
INPUT = b'{"order": 123456, "customer": "Ada Lovelace", "items": [{"sku": "A-1", "n": 2}, {"sku": "B-7", "n": 1}]}'
OUTPUT = (
    b'{"status": 200, "body": {"id": "ch_0123456789abcdef", "amount": 4200, "currency": "eur", "paid": true}}'
)

DEFINITION = b'{"id": "full"}'


def compiled(document: jobs.Document, catalogue: Catalogue) -> Plan:
    """Compile a definition into a plan."""
    parsed = parse_document(msgspec.json.encode(document))
    assert not parsed.problems, parsed.problems
    assert parsed.definition is not None
    return compile_definition(parsed.definition, catalogue)


def chain(length: int, catalogue: Catalogue, *, effectful: bool) -> Plan:
    """A chain of built-in nodes that do nothing."""
    return compiled(jobs.noop_chain(length, effectful=effectful), catalogue)


def fan(catalogue: Catalogue, *, effectful: bool = False) -> Plan:
    """A split with one node per item and an aggregator; an effectful node goes through the queue."""
    return compiled(jobs.fan(jobs.noop(effectful=True) if effectful else jobs.PURE), catalogue)


def calls(url: str, at_once: int, catalogue: Catalogue) -> Plan:
    """A split with one HTTP request per item and limited concurrency."""
    nodes: jobs.Nodes = [
        {"id": "start", "type": "input"},
        {"id": "s", **jobs.split("$trigger.xs", max_in_flight=at_once)},
        {"id": "c", "type": "http", "parameters": {"url": url, "raise_on_status": "4xx,5xx", "timeout": 120}},
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    return compiled(jobs.document(nodes, ("start", "s"), ("s", "c"), ("c", "g"), ("g", "n")), catalogue)


def sharing(catalogue: Catalogue) -> Plan:
    """A split whose items each read one field of one upstream value."""
    nodes: jobs.Nodes = [
        {"id": "start", "type": "input"},
        {"id": "big", **jobs.assign("blob", "$trigger.blob", "field", "$trigger.field")},
        {"id": "s", **jobs.split("$trigger.xs")},
        {"id": "x", **jobs.assign("v", "$big.field")},
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    links = (("start", "big"), ("big", "s"), ("s", "x"), ("x", "g"), ("g", "n"))
    return compiled(jobs.document(nodes, *links), catalogue)


def waiting(catalogue: Catalogue) -> Plan:
    """A wait until a given date."""
    return compiled(jobs.waiting(), catalogue)


class Bare(NamedTuple):
    """What a loop without an engine reached: units per second, and CPU time of each."""

    rate: float
    cpu_us: float


def bare_nodes(path: Path, *, nodes: int, claims: bool, per_commit: int, relaxed: bool = False) -> Bare:
    """Write one fact, and optionally one claim, per node."""

    def rows(numbers: range) -> tuple[list[Start], list[Rows]]:
        group = []
        for i in numbers:
            fact = (i % CONCURRENCY, 1, i // CONCURRENCY, b"", 0, i, 0, b"x" * 90)
            claim = (i % CONCURRENCY, i // CONCURRENCY, b"", i, i)
            group.append(Rows("x", [fact], [claim] if claims else [], None))
        return [], group

    return _written(path, nodes, per_commit, rows, relaxed=relaxed)


def bare_executions(path: Path, *, executions: int, per_commit: int) -> Bare:
    """Write a start, a claim, a result and an end per execution."""
    now = time.time_ns() // 1_000_000

    def rows(numbers: range) -> tuple[list[Start], list[Rows]]:
        built = list(_build_rows([(n + 1, now) for n in numbers], "bare", "", "completed", nodes=1))
        return [start for start, _ in built], [each for _, each in built]

    return _written(path, executions, per_commit, rows)


def _written(
    path: Path,
    units: int,
    per_commit: int,
    rows: Callable[[range], tuple[list[Start], list[Rows]]],
    *,
    relaxed: bool = False,
) -> Bare:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
        migrate(db)
        with Spent() as spent:
            for first in range(0, units, per_commit):
                _write(db, *rows(range(first, min(first + per_commit, units))))
    return Bare(units / spent.seconds, spent.cpu_s / units * 1e6)


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
            built = list(_build_rows(moments, workflow, hash, status))
            _write(db, [start for start, _ in built], [rows for _, rows in built])
    finally:
        db.close()


def _write(db: sqlite3.Connection, starts: list[Start], rows: list[Rows]) -> None:
    db.execute("BEGIN IMMEDIATE")
    write_starts(db, starts)
    write_rows(db, rows)
    db.execute("COMMIT")


def _build_rows(
    moments: list[tuple[int, int]], workflow: str, hash: str, status: Status, nodes: int = NODES
) -> Iterator[tuple[Start, Rows]]:
    for n, ended_at in moments:
        at = ended_at - 40
        id = f"x{at:012x}{n:014x}"
        accepted = ExecutionRecord(id=id, workflow=workflow, hash=hash, at=at, input=Inline(INPUT))
        end = ExecutionEnded(ended_at, status)
        facts = [
            NodeResult(node, (), at + 10 * node, "ok", value=Inline(OUTPUT)) for node in range(1, nodes + 1)
        ]
        whole: list[Fact] = [*facts, end]
        rows = [
            (n, *fact_columns(fact), n * (nodes + 1) + i, 0, encode_fact(fact))
            for i, fact in enumerate(whole)
        ]
        claims = [(n, fact.node, b"", n, fact.at) for fact in facts]
        row = (n, id, workflow, hash, at, at, msgspec.msgpack.encode(accepted))
        yield Start(row), Rows(execution=id, facts=rows, claims=claims, end=end)


def new_settings(folder: Path) -> Settings:
    """Return the settings of an engine in an empty folder."""
    return Settings(home=str(folder))


async def completed(engine: Engine, plan: Plan, payloads: Sequence[bytes], concurrency: int) -> list[float]:
    """Run one execution per payload and return the duration of each from start to completion, in ms."""
    waiting = iter(payloads)
    took: list[float] = []

    async def lane() -> None:
        for payload in waiting:
            began = time.perf_counter()
            _, ending = await engine.start(plan, payload)
            end = await ending
            if end.status != "completed":
                raise AssertionError(f"an execution ended as {end.status}: {end.error}")
            took.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(payloads))):
            group.create_task(lane())
    return took


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one measure. `limit` is the rate of a loop without an engine in the same run, `ratio` rate / limit;
    `cpu_us` and `limit_cpu_us` are the CPU time per unit of both, in all threads and processes."""

    name: str
    rate: float | None = None
    unit: str = ""
    cpu_us: float | None = None
    limit_cpu_us: float | None = None
    limit: float | None = None
    ratio: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    rss_mb: float | None = None
    goal: str = ""
    met: bool | None = None
    interpreter: str = msgspec.field(default_factory=describe)
    details: dict[str, float | int | str] = {}


class Spent:
    """CPU seconds of this process and of its children that ended, once the block has ended."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        self._began, self._cpu = time.perf_counter(), _cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_s = _cpu_s() - self._cpu


def _cpu_s() -> float:
    used = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def resident_mb(*, peak: bool = False) -> float:
    """Return the resident memory of this process, or the most that it has had."""
    if not peak:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
