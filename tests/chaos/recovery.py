"""How long tokens of killed processes wait, over many kills:

python -m tests.chaos.recovery --kills 200 [--queue rabbitmq|redis] [--limit 10] [--seed 1]

Workers and schedulers are killed under load, at random or at a fail point between two stores. The recovery time of a
kill is the longest time that an execution, which was running when the process died, needed until the journal had a next
row of it. The next process is killed when all executions have moved on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.chaos.breakable_cluster import BreakableCluster, breakable_cluster, pause
from tests.chaos.campaigns import print_line, queue_environment, settle_and_check
from tests.chaos.cluster_checks import Findings
from tests.chaos.cluster_load import ONLY
from tests.support.services.fleet import Process, Role

SHAPES = "chain,join,fan-out,nested,child,first of two"
"""Workflows that wait for nothing but their own nodes, so that a pause between two rows is a recovery."""

WORKERS, SCHEDULERS = 3, 2
POINTS = ("claimed", "ran", "journaled", "applied", "sent", "ended")
PASSED = (10, 150)  # how often a worker passes its fail point before it dies there
TIMEOUT_S = 180.0
LIMIT_S = 10.0
MARGIN_S = 2.0  # for a busy machine

_STALLED = """
SELECT count(*) FROM execution AS e
WHERE e.at < {at} AND (e.ended_at IS NULL) AND NOT EXISTS (
    SELECT 1 FROM fact AS f
    WHERE f.execution = e.n AND extract(epoch FROM pg_xact_commit_timestamp(f.xmin)) * 1000 > {at})
"""
_ROWS = """
SELECT e.id, extract(epoch FROM pg_xact_commit_timestamp(f.xmin)) * 1000
FROM execution AS e JOIN fact AS f ON f.execution = e.n
UNION ALL SELECT id, at FROM execution UNION ALL SELECT id, ended_at FROM execution WHERE ended_at IS NOT NULL
"""


class Killer:
    """Kills processes of a cluster one after the other."""

    def __init__(self, cluster: BreakableCluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.kills: list[tuple[float, str]] = []
        """When each process died (epoch ms), and how."""

    def kill(self) -> None:
        """Kill one process, replace it, and wait until all executions that were running have moved on."""
        self._cluster.wait_ready()
        how = self._rng.choice(("worker", "scheduler", "point", "point"))
        died = (
            self._at_point()
            if how == "point"
            else self._at_random("worker" if how == "worker" else "scheduler")
        )
        self._cluster.wait_for(
            lambda: self._stalled(died) == 0,
            f"executions stand still after kill {len(self.kills)}",
            TIMEOUT_S,
        )

    def _at_random(self, role: Role) -> float:
        running = self._cluster.fleet.of(role)
        died = time.time() * 1000
        running[self._rng.randrange(len(running))].kill()
        self._cluster.fleet.start(role)
        self.kills.append((died, role))
        return died

    def _at_point(self) -> float:
        """Start a worker that dies at a fail point under load."""
        point = f"{self._rng.choice(POINTS)}:{self._rng.randint(*PASSED)}"
        doomed: Process = self._cluster.fleet.start("worker", RUNE_FAILPOINT=point)
        self._cluster.wait_for(lambda: not doomed.alive, f"no worker died at {point}", TIMEOUT_S)
        died = time.time() * 1000
        self.kills.append((died, point))
        return died

    def _stalled(self, since: float) -> int:
        """Count the executions without a row since a time."""
        query = " ".join(_STALLED.format(at=round(since)).split())
        return int(self._cluster.database.server.sql(query, "chaos"))


def recovery_times(cluster: BreakableCluster, kills: list[tuple[float, str]]) -> list[float]:
    """Return for each kill the longest time in seconds until a running execution had a next row."""
    rows: dict[str, list[float]] = {}
    for line in cluster.database.server.sql(" ".join(_ROWS.split()), "chaos").splitlines():
        execution, at = line.split("|")
        rows.setdefault(execution, []).append(float(at))
    found = [0.0] * len(kills)
    for moments in rows.values():
        moments.sort()
        for number, (died, _) in enumerate(kills):
            following = next((at for at in moments if at > died), None)
            if moments[0] < died and following is not None:
                found[number] = max(found[number], (following - died) / 1000)
    return found


def campaign(
    folder: Path, kills: int, queue: str, seed: int, *, say: Callable[[str], None] = print
) -> tuple[Findings, list[float]]:
    """Kill processes, wait for the end of all executions, and check; return the recovery times too."""
    with (
        queue_environment(queue) as environment,
        breakable_cluster(folder, workers=WORKERS, schedulers=SCHEDULERS, environment=environment) as cluster,
    ):
        os.environ[ONLY] = SHAPES  # for the checks
        cluster.load(environment={ONLY: SHAPES})
        killer = Killer(cluster, Random(seed))
        violations: list[str] = []
        try:
            for number in range(kills):
                pause(killer._rng.uniform(0.05, 0.5))
                killer.kill()
                if (number + 1) % 20 == 0:
                    say(f"{number + 1} kills")
        except AssertionError as error:
            violations.append(str(error))
        found = settle_and_check(cluster, violations, "rune-chaos-recovery-logs", cleanup_timeout_s=0.0)
        times = recovery_times(cluster, killer.kills)
        for took, (_, how) in sorted(zip(times, killer.kills, strict=True), reverse=True)[:5]:
            say(f"  {took:5.1f} s after {how}")
        return found, times


def percentile(times: list[float], part: float) -> float:
    """Return the time below which this part of all recoveries stayed."""
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--queue", choices=("rabbitmq", "redis"), default="rabbitmq")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a recovery may take")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        found, times = campaign(Path(folder), options.kills, options.queue, options.seed, say=print_line)
    for each in found.violations[:20]:
        print(each)
    slow = sum(each > options.limit + MARGIN_S for each in times)
    print(
        f"recovery ({options.queue}): {len(times)} kills, {found.executions:,} executions,"
        f" p50 {percentile(times, 0.5):.1f} s, p95 {percentile(times, 0.95):.1f} s, max {max(times):.1f} s,"
        f" {slow} above {options.limit:g} s, {len(found.violations)} violations,"
        f" {time.perf_counter() - began:.0f} s"
    )
    return 1 if found.violations or slow else 0


if __name__ == "__main__":
    sys.exit(main())
