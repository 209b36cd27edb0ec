"""Checks of a cluster after faults: all executions ended correctly, effects were not repeated, nothing is left."""

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
from rune.core.execution.token import idempotency_key, token_name
from rune.core.plan.model import Plan
from rune.ports.journal import StoredFact
from rune.runtime.queries.reader import ExecutionReader
from tests.chaos.breakable_cluster import BreakableCluster, pause
from tests.chaos.cluster_load import shape_of
from tests.chaos.effects import Effect, read_effects
from tests.chaos.load import Keys
from tests.support.paths import ROOT
from tests.support.written import as_written

EFFECT_SLACK_S = 1.0
"""Seconds after its row in which an effect may still be made, by a worker that claimed the token just before."""

PERMANENT_KEYS = (
    "rune:settings",
    "rune:incarnation",
    "rune:journal",
    "rune:database",
    "rune:fleet",
    "rune:recovered",
)
EXPIRING_KEYS = (":activated",)
"""Marks that Redis removes after a minute."""

CLEANUP_TIMEOUT_S = 120.0
MAX_FUTURE_MS = 310_000
PAGE = 500

Times = dict[tuple[str, int, int, bytes, int], float]
"""Commit times of rows by execution, kind, node, path and number."""


class Rows(NamedTuple):
    """The journaled attempts and result of a token with an effect."""

    attempts: dict[int, float]
    result: float | None
    ok: int | None
    once: bool


class Findings(NamedTuple):
    """The result of a campaign."""

    executions: int
    effects: int
    repeated: int
    violations: list[str]


def audit(cluster: BreakableCluster) -> dict[str, Any]:
    """Return the report of `rune verify --all`."""
    command = [sys.executable, "-m", "rune", "verify", "--all", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=cluster.fleet.environment, capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_cluster(
    cluster: BreakableCluster, drained: int, *, cleanup_timeout_s: float = CLEANUP_TIMEOUT_S
) -> Findings:
    """Check everything after all executions have ended."""
    keys = Keys(cluster.folder)
    violations = [] if drained == 0 else [f"executions did not end: {_open(cluster)}"]
    violations += _leftovers(cluster, cleanup_timeout_s) if drained == 0 and cleanup_timeout_s else []
    report = audit(cluster)
    if report["violations"]:
        violations.append(
            f"the audit found {report['violations']} violations: {json.dumps(report['audits'])[:3000]}"
        )
    if report["totals"]["open"]:
        violations.append(f"{report['totals']['open']} tokens are open")
    found, effects, repeated = asyncio.run(_check_executions(cluster, keys))
    return Findings(len(keys.acked), effects, repeated, violations + found)


def _open(cluster: BreakableCluster) -> str:
    return cluster.database.server.sql(
        "SELECT string_agg(id || ' ' || workflow, ', ') FROM execution WHERE ended_at IS NULL", "chaos"
    )[:1500]


def _leftovers(cluster: BreakableCluster, patience: float) -> list[str]:
    """Wait until Redis and the outbox hold no entries of ended executions."""
    until = time.monotonic() + patience
    while left := [*_in_redis(cluster), *_in_outbox(cluster)]:
        if time.monotonic() > until:
            return [f"left over: {left[:10]}"]
        pause(0.5)
    return []


def _in_outbox(cluster: BreakableCluster) -> list[str]:
    rows = cluster.database.server.sql("SELECT kind || ' ' || execution FROM outbox LIMIT 5", "chaos")
    return [f"outbox: {each}" for each in rows.splitlines()]


def _in_redis(cluster: BreakableCluster) -> list[str]:
    """Return unexpected keys. Due times may remain for as long as a join waits by default; an entry that is overdue or
    later than that is orphaned."""
    found = []
    now = round(time.time() * 1000)
    for key in cluster.redis.command("--scan").split():
        if key.startswith(PERMANENT_KEYS) or key.endswith(EXPIRING_KEYS):
            continue
        kind = cluster.redis.command("TYPE", key).strip()
        if kind == "zset" and ":x:" not in key:
            spans = (("-inf", f"{now}"), (f"{now + MAX_FUTURE_MS}", "inf"))
            count = sum(int(cluster.redis.command("ZCOUNT", key, *span)) for span in spans)
        else:
            count = int(cluster.redis.command("XLEN", key)) if kind == "stream" else 1
        if count:
            found.append(f"{key}: {count}")
    return found


async def _check_executions(cluster: BreakableCluster, keys: Keys) -> tuple[list[str], int, int]:
    times = _times(cluster)
    tokens: dict[str, Rows] = {}
    violations: list[str] = []
    roots = {execution: key for key, execution in keys.acked.items()}
    seen: set[str] = set()
    async with open_reader(cluster.fleet.settings) as reader:
        after = None
        while page := await reader.executions(after=after, limit=PAGE):
            for each in page:
                seen.add(each.id)
                stored = await reader.facts(each.id)
                tokens |= _rows(await reader.plan(each.id), each.id, stored, times)
                if each.id in roots:
                    violations += await _check_output(reader, each.id, roots[each.id])
            after = page[-1].id
    lost = roots.keys() - seen
    if lost:
        violations.append(f"{len(lost)} acknowledged starts are lost: {sorted(lost)[:5]}")
    effects = read_effects(cluster.ledger)
    found, repeated = _effects(effects, tokens)
    return violations + found, len(effects), repeated


async def _check_output(reader: ExecutionReader, execution: str, key: str) -> list[str]:
    """Check the output of an execution."""
    document = as_written(await (await reader.history(execution)).document())
    name, shape = shape_of(key)
    if document["status"] == "completed" and document["output"] in shape.outputs:
        return []
    actual = (document["status"], document["output"], document["error"])
    return [f"{execution} ({name}, {key}) has a wrong outcome: {actual}"]


def _times(cluster: BreakableCluster) -> Times:
    rows = cluster.database.server.sql(
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


def _effects(effects: list[Effect], tokens: dict[str, Rows]) -> tuple[list[str], int]:
    violations: list[str] = []
    counts = Counter((each.key, each.attempt) for each in effects)
    for each in effects:
        rows = tokens.get(each.key)
        if rows is None:
            continue  # the token lost a race or was cancelled by the end
        bound = rows.attempts.get(each.attempt, rows.result)
        if bound is not None and each.at > bound + EFFECT_SLACK_S:
            violations.append(f"{each.key}#{each.attempt} was made {each.at - bound:.3f} s after its row")
    for key, rows in tokens.items():
        if rows.ok is not None and not counts[(key, rows.ok)]:
            violations.append(f"{key} has a result, and its effect was never made")
        if rows.once and sum(counts[(key, attempt)] for attempt in (1, 2, 3)) > 1:
            violations.append(f"{key} is at most once and was repeated")
    return violations, sum(count - 1 for count in counts.values())


def copy_logs(cluster: BreakableCluster, where: Path) -> None:
    """Copy the logs of the processes."""
    where.mkdir(parents=True, exist_ok=True)
    for each in cluster.folder.glob("*.log"):
        (where / each.name).write_bytes(each.read_bytes())
