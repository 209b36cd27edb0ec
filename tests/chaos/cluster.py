"""Faults of a cluster under load, then checks:

python -m tests.chaos.cluster --workers 200 --schedulers 50 --redis 50 --wiped 25 --cut 25 --postgres 50 --away 3
    [--scale 0.1] [--minutes 3] [--rebuild 2000] [--seed 1]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.chaos.breakable_cluster import BreakableCluster, breakable_cluster, pause
from tests.chaos.campaigns import campaign_parser, print_line, report, scaled_counts, settle_and_check
from tests.chaos.cluster_checks import CLEANUP_TIMEOUT_S, Findings
from tests.chaos.rebuild import measure_rebuild
from tests.support.services.fleet import Role

KINDS = ("workers", "schedulers", "redis", "wiped", "cut", "postgres", "away")
COUNTS = dict(zip(KINDS, (200, 50, 50, 25, 25, 50, 3), strict=True))
ROLES: tuple[Role, ...] = ("worker", "scheduler")
PER_ROLE = 2  # processes
MIN_ENDED = 3  # executions that must end between two faults
MAX_REBUILD_S = 20.0
RECOVERY_TIMEOUT_S = 90.0  # until executions end again after a fault


class Campaign:
    """Causes faults of one kind after the other."""

    def __init__(self, cluster: BreakableCluster, rng: Random, minutes: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._minutes = minutes

    def phase(self, kind: str, count: int) -> Iterator[str]:
        """Cause faults of one kind; yield a summary."""
        fault: Callable[[int], None] = getattr(self, f"_{kind}")
        began, ended = time.monotonic(), self._cluster.ended()
        slowest = 0.0
        for number in range(count):
            pause(self._rng.uniform(0.05, 0.5))
            broke = time.monotonic()
            fault(number)
            goal = self._cluster.ended() + MIN_ENDED
            self._cluster.wait_for(
                lambda goal=goal: self._cluster.ended() >= goal,
                f"no execution ended after {kind} number {number + 1}",
                RECOVERY_TIMEOUT_S,
            )
            slowest = max(slowest, time.monotonic() - broke)
        self._cluster.wait_ready()  # a process that starts while a store is unavailable is retried
        self._check_complete(kind)
        took, ended = time.monotonic() - began, self._cluster.ended() - ended
        yield f"{kind}: {count} in {took:.0f} s, {ended} executions ended, slowest recovery {slowest:.1f} s"

    def _check_complete(self, kind: str) -> None:
        """Check that no process has ended because of a fault."""
        for role in ROLES:
            there = len(self._cluster.fleet.of(role))
            assert there == PER_ROLE, f"after {kind} {there} of {PER_ROLE} {role}s are running"

    def _workers(self, number: int) -> None:
        self._cluster.kill("worker", self._rng.randrange(PER_ROLE))

    def _schedulers(self, number: int) -> None:
        self._cluster.kill("scheduler", self._rng.randrange(PER_ROLE))

    def _redis(self, number: int) -> None:
        self._cluster.redis.restart()

    def _wiped(self, number: int) -> None:
        if number % 2:
            self._cluster.redis.command("FLUSHALL")
        else:
            self._cluster.redis.wipe()

    def _cut(self, number: int) -> None:
        self._cluster.redis.cut(self._rng.uniform(0.8, 1.5))

    def _postgres(self, number: int) -> None:
        self._cluster.database.down()
        self._cluster.database.up()

    def _away(self, number: int) -> None:
        self._cluster.database.down()
        pause(self._minutes * 60)
        self._cluster.database.up()


def campaign(
    folder: Path,
    counts: dict[str, int],
    seed: int,
    minutes: float,
    *,
    say: Callable[[str], None] = print,
    cleanup_timeout_s: float = CLEANUP_TIMEOUT_S,
) -> Findings:
    """Cause the faults, wait for the end of all executions, and check."""
    with breakable_cluster(folder, workers=PER_ROLE, schedulers=PER_ROLE) as cluster:
        cluster.load()
        run = Campaign(cluster, Random(seed), minutes)
        violations: list[str] = []
        try:
            for kind in KINDS:
                for line in run.phase(kind, counts[kind]) if counts[kind] else ():
                    say(line)
        except AssertionError as error:
            violations.append(str(error))
        return settle_and_check(cluster, violations, "rune-chaos-logs", cleanup_timeout_s=cleanup_timeout_s)


def main() -> int:
    parser = campaign_parser(__doc__, COUNTS)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long PostgreSQL is unavailable")
    parser.add_argument(
        "--rebuild", type=int, default=0, help="only measure the rebuild of so many executions after a wipe"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        if options.rebuild:
            return _rebuild(Path(folder), options.rebuild)
        began = time.perf_counter()
        counts = scaled_counts(options, COUNTS)
        found = campaign(Path(folder), counts, options.seed, options.minutes, say=print_line)
    return report("chaos-cluster", sum(counts.values()), found, began)


def _rebuild(folder: Path, count: int) -> int:
    found = measure_rebuild(folder, count)
    for each in found.violations[:20]:
        print(each)
    print(
        f"rebuild: {count:,} running executions were rebuilt {found.states:.1f} s after the wipe and had ended"
        f" after {found.ended:.1f} s; {len(found.violations)} violations"
    )
    return 1 if found.violations or found.states > MAX_REBUILD_S else 0


if __name__ == "__main__":
    sys.exit(main())
