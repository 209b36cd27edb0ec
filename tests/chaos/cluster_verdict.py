"""The verdict on a cluster that was broken: everything ended, rightly, once, and nothing is left over."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from rune.bootstrap import open_reader
from rune.codec.facts import fact_columns
from rune.core.execution.fact import AttemptFailed, NodeResult
from rune.core.execution.token import token_name
from rune.core.plan.model import Plan
from rune.ids import idempotency_key
from rune.ports.journal import StoredFact
from rune.runtime.queries.reader import ExecutionReader
from tests.chaos.cluster_load import shape_of
from tests.chaos.effects import Made, made
from tests.chaos.load import Keys
from tests.chaos.stand import Stand, pause
from tests.support.paths import ROOT

SLACK = 1.0
"""Somebody who claimed a token just before its row was written may make the effect so many seconds later."""

LASTING = ("rune:settings", "rune:incarnation", "rune:fleet", "rune:recovered")
TIDY = 120.0
LATER = 310_000  # ms
PAGE = 500

Times = dict[tuple[str, int, int, bytes, int], float]
"""When each row was committed: by execution, kind, node, path and number."""


class Rows(NamedTuple):
    """What the journal says of one token with an effect."""

    attempts: dict[int, float]
    result: float | None
    ok: int | None
    once: bool


class Verdict(NamedTuple):
    """What was found."""

    executions: int
    effects: int
    repeated: int
    wrong: list[str]


def audited(stand: Stand) -> dict[str, Any]:
    """What `rune audit --all` says."""
    command = [sys.executable, "-m", "rune", "audit", "--all", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=stand.fleet.environment, capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def verdict(stand: Stand, drained: int, *, tidy: float = TIDY) -> Verdict:
    """Judge everything, once nothing is under way."""
    keys = Keys(stand.folder)
    wrong = [] if drained == 0 else [f"not everything ended: {_open(stand)}"]
    wrong += _tidied(stand, tidy) if drained == 0 and tidy else []
    report = audited(stand)
    if report["violations"]:
        wrong.append(
            f"the audit found {report['violations']} violations: {json.dumps(report['audits'])[:3000]}"
        )
    if report["totals"]["open"]:
        wrong.append(f"{report['totals']['open']} tokens are open")
    found, effects, repeated = asyncio.run(_judged(stand, keys))
    return Verdict(len(keys.acked), effects, repeated, wrong + found)


def _open(stand: Stand) -> str:
    return stand.database.server.sql(
        "SELECT string_agg(id || ' ' || workflow, ', ') FROM execution WHERE ended_at IS NULL", "chaos"
    )[:1500]


def _tidied(stand: Stand, patience: float) -> list[str]:
    """Wait until nothing is left but what is bounded."""
    until = time.monotonic() + patience
    while left := [*_in_redis(stand), *_in_outbox(stand)]:
        if time.monotonic() > until:
            return [f"left over: {left[:10]}"]
        pause(0.5)
    return []


def _in_outbox(stand: Stand) -> list[str]:
    rows = stand.database.server.sql("SELECT kind || ' ' || execution FROM outbox LIMIT 5", "chaos")
    return [f"outbox: {each}" for each in rows.splitlines()]


def _in_redis(stand: Stand) -> list[str]:
    """Entries that say when to look again may stand there for as long as a join waits by default; one that is due and
    stays, or is set for later than that, belongs to nobody."""
    found = []
    now = round(time.time() * 1000)
    for key in stand.redis.ask("--scan").split():
        if key.startswith(LASTING):
            continue
        kind = stand.redis.ask("TYPE", key).strip()
        if kind == "zset" and ":x:" not in key:
            spans = (("-inf", f"{now}"), (f"{now + LATER}", "inf"))
            count = sum(int(stand.redis.ask("ZCOUNT", key, *span)) for span in spans)
        else:
            count = int(stand.redis.ask("XLEN", key)) if kind == "stream" else 1
        if count:
            found.append(f"{key}: {count}")
    return found


async def _judged(stand: Stand, keys: Keys) -> tuple[list[str], int, int]:
    times = _times(stand)
    tokens: dict[str, Rows] = {}
    wrong: list[str] = []
    roots = {execution: key for key, execution in keys.acked.items()}
    seen: set[str] = set()
    async with open_reader(stand.fleet.settings) as look:
        after = None
        while page := await look.executions(after=after, limit=PAGE):
            for each in page:
                seen.add(each.id)
                stored = await look.facts(each.id)
                tokens |= _rows(await look.plan(each.id), each.id, stored, times)
                if each.id in roots:
                    wrong += await _came_out(look, each.id, roots[each.id])
            after = page[-1].id
    lost = roots.keys() - seen
    if lost:
        wrong.append(f"{len(lost)} acknowledged starts are lost: {sorted(lost)[:5]}")
    effects = made(stand.ledger)
    found, repeated = _effects(effects, tokens)
    return wrong + found, len(effects), repeated


async def _came_out(look: ExecutionReader, execution: str, key: str) -> list[str]:
    """The right output, whatever happened meanwhile."""
    document = await (await look.history(execution)).document()
    name, shape = shape_of(key)
    if document["status"] == "completed" and document["output"] in shape.outputs:
        return []
    said = (document["status"], document["output"], document["error"])
    return [f"{execution} ({name}, {key}) came out wrong: {said}"]


def _times(stand: Stand) -> Times:
    rows = stand.database.server.sql(
        "SELECT e.id, f.kind, f.node, encode(f.path, 'hex'), f.number,"
        " extract(epoch FROM pg_xact_commit_timestamp(f.xmin))"
        " FROM fact AS f JOIN execution AS e ON e.n = f.execution",
        "chaos",
    )
    found: Times = {}
    for line in rows.splitlines():
        id, kind, node, path, number, at = line.split("|")
        found[(id, int(kind), int(node), bytes.fromhex(path), int(number))] = float(at)
    return found


def _rows(plan: Plan, execution: str, stored: list[StoredFact], times: Times) -> dict[str, Rows]:
    attempts: dict[str, dict[int, float]] = defaultdict(dict)
    results: dict[str, tuple[float, int | None]] = {}
    once: dict[str, bool] = {}
    for each in stored:
        fact = each.fact
        if (
            not isinstance(fact, NodeResult | AttemptFailed)
            or plan.nodes[fact.node].node.type != "chaos.effect"
        ):
            continue
        key = idempotency_key(execution, token_name(fact.node, fact.path, plan.ids))
        kind, node, path, number = fact_columns(fact)
        at = times[(execution, kind, node, path, number)]
        once[key] = plan.nodes[fact.node].node.at_most_once
        if isinstance(fact, AttemptFailed):
            attempts[key][fact.attempt] = at
        else:
            results[key] = (at, fact.attempt if fact.status == "ok" else None)
    return {
        key: Rows(
            attempts[key], results.get(key, (None, None))[0], results.get(key, (None, None))[1], once[key]
        )
        for key in once
    }


def _effects(effects: list[Made], tokens: dict[str, Rows]) -> tuple[list[str], int]:
    wrong: list[str] = []
    counts = Counter((each.key, each.attempt) for each in effects)
    for each in effects:
        rows = tokens.get(each.key)
        if rows is None:
            continue  # of a race that was lost, or cut off by the end
        bound = rows.attempts.get(each.attempt, rows.result)
        if bound is not None and each.at > bound + SLACK:
            wrong.append(f"{each.key}#{each.attempt} was made {each.at - bound:.3f} s after its row")
    for key, rows in tokens.items():
        if rows.ok is not None and not counts[(key, rows.ok)]:
            wrong.append(f"{key} has a result, and its effect was never made")
        if rows.once and sum(counts[(key, attempt)] for attempt in (1, 2, 3)) > 1:
            wrong.append(f"{key} must not be made twice and was")
    return wrong, sum(count - 1 for count in counts.values())


def kept_logs(stand: Stand, where: Path) -> None:
    """What the processes said, for whoever looks for the cause."""
    where.mkdir(parents=True, exist_ok=True)
    for each in stand.folder.glob("*.log"):
        (where / each.name).write_bytes(each.read_bytes())
