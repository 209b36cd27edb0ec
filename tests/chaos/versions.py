"""A rolling upgrade under load with kills, then checks: processes of the previous version beside today's.

python -m tests.chaos.versions --killed 40 --stopped 20 --redis 10 --wiped 10
    [--queue redis|rabbitmq] [--ref COMMIT] [--scale 0.1] [--seed 1]

First each version reads the samples that the other one wrote. The cluster is started by the previous version.
`rune migrate` of today's is applied while it works, and processes of today's version join. Then processes of both are
killed and stopped, and Redis is restarted and emptied, so that each version rebuilds and continues what the other one
wrote. At last the remaining processes of the previous version are replaced one by one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.chaos.breakable_cluster import BreakableCluster, breakable_cluster, pause
from tests.chaos.campaigns import (
    campaign_parser,
    print_line,
    queue_environment,
    report,
    scaled_counts,
    settle_and_check,
)
from tests.chaos.cluster_checks import Findings
from tests.support.paths import ROOT
from tests.support.previous_version import PREVIOUS, checked_out, environment_of, run_samples
from tests.support.samples import difference
from tests.support.services.fleet import Process, Role

COUNTS = {"killed": 40, "stopped": 20, "redis": 10, "wiped": 10}
OLD_WORKERS, OLD_SCHEDULERS = 4, 2
ROLES: tuple[Role, ...] = ("worker", "scheduler")
MIN_ENDED = 3  # executions that must end between two faults
RECOVERY_TIMEOUT_S = 120.0
STOPPED_S = (0.5, 4.0)  # shorter than a lease, after which others repeat what a process has begun


class Upgrade:
    """A cluster of two versions and the faults of its processes."""

    def __init__(self, cluster: BreakableCluster, old: Path, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._old = environment_of(old)
        self._new = environment_of(ROOT)
        self._of_old = list(cluster.fleet.processes)

    def run(self, counts: dict[str, int]) -> Iterator[str]:
        """Upgrade and cause the faults; yield a line for each step."""
        yield from self._phase("previous version alone", [_nothing])
        self._migrate()
        for role in ROLES:
            self._start(role)
        self._cluster.wait_ready()
        faults = [getattr(self, f"_{kind}") for kind, count in counts.items() for _ in range(count)]
        self._rng.shuffle(faults)
        half = len(faults) // 2
        yield from self._phase("starts by the previous version", faults[:half])
        drained = self._cluster.drain()
        assert drained == 0, "executions that the previous version started did not end"
        self._cluster.load(environment=self._new)
        yield from self._phase("starts by today's version", faults[half:])
        yield from self._phase(
            "replacement", [partial(self._replace, each) for each in self._of_old if each.alive]
        )

    def _phase(self, name: str, faults: list[Callable[[], None]]) -> Iterator[str]:
        began, ended, slowest = time.monotonic(), self._cluster.ended(), 0.0
        for number, fault in enumerate(faults, 1):
            pause(self._rng.uniform(0.05, 0.5))
            fault()
            failure = f"no execution ended after fault {number} of `{name}`"
            goes_on = partial(self._has_ended, self._cluster.ended() + MIN_ENDED)
            slowest = max(slowest, self._cluster.wait_for(goes_on, failure, RECOVERY_TIMEOUT_S))
        took, ended = time.monotonic() - began, self._cluster.ended() - ended
        old = sum(each.alive for each in self._of_old)
        yield (
            f"{name}: {len(faults)} faults in {took:.0f} s, {ended} executions ended, slowest recovery"
            f" {slowest:.1f} s, {old} processes of the previous version are left"
        )

    def _migrate(self) -> None:
        command = [sys.executable, "-m", "rune", "migrate"]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=self._environment())

    def _environment(self) -> dict[str, str]:
        return {**self._cluster.fleet.environment, **self._new}

    def _has_ended(self, count: int) -> bool:
        return self._cluster.ended() >= count

    def _start(self, role: Role) -> None:
        """Start a process of today's version: the previous one does not start on a schema newer than its own."""
        self._cluster.fleet.start(role, **self._new)

    def _killed(self) -> None:
        """Kill a process of either version, but not the last one of the previous version in its role."""
        self._cluster.wait_ready()
        running = [each for role in ROLES for each in self._cluster.fleet.of(role)]
        kept = [
            max((each for each in self._of_old if each.alive and each.role == role), key=id) for role in ROLES
        ]
        self._replace(self._rng.choice([each for each in running if each not in kept]))

    def _replace(self, process: Process) -> None:
        process.kill()
        self._start(process.role)
        self._cluster.wait_ready()

    def _stopped(self) -> None:
        """Let a process of the previous version stand still, and go on."""
        process = self._rng.choice([each for each in self._of_old if each.alive]).process
        process.send_signal(signal.SIGSTOP)
        pause(self._rng.uniform(*STOPPED_S))
        process.send_signal(signal.SIGCONT)

    def _redis(self) -> None:
        self._cluster.redis.restart()

    def _wiped(self) -> None:
        """Drop the state and the streams; functions stay."""
        self._cluster.redis.command("FLUSHALL")


def _nothing() -> None:
    """No fault."""


def unreadable_samples(old: Path) -> list[str]:
    """Return the samples that the version in a tree does not read as today's wrote them, or today's of its."""
    found = []
    known = run_samples(old, "write").keys() & run_samples(ROOT, "write").keys()
    for writer, reader in ((ROOT, old), (old, ROOT)):
        written = {name: data for name, data in run_samples(writer, "write").items() if name in known}
        meant, read = run_samples(writer, "read", written), run_samples(reader, "read", written)
        common = {
            name: (read[name], meant[name]) if reader is old else (meant[name], read[name])
            for name in written
        }
        found += [
            f"a sample from {writer}: {lost}"
            for name, (less, more) in common.items()
            if (lost := difference(less, more, name))
        ]
    return found


def campaign(
    folder: Path,
    counts: dict[str, int],
    seed: int,
    queue: str,
    ref: str = PREVIOUS,
    *,
    say: Callable[[str], None] = print,
) -> Findings:
    """Upgrade a cluster under load, wait for the end of all executions, and check."""
    home = folder / "home"
    home.mkdir()
    with (
        checked_out(folder, ref) as old,
        queue_environment(queue) as environment,
        breakable_cluster(
            home,
            workers=OLD_WORKERS,
            schedulers=OLD_SCHEDULERS,
            environment={**environment, **environment_of(old)},
        ) as cluster,
    ):
        cluster.load(old)
        violations = unreadable_samples(old)
        try:
            for line in Upgrade(cluster, old, Random(seed)).run(counts):
                say(line)
        except AssertionError as error:
            violations.append(str(error))
        cluster.fleet.environment.update(environment_of(ROOT))
        return settle_and_check(
            cluster, violations, f"rune-chaos-{queue}-versions-logs", cleanup_timeout_s=0.0
        )


def main() -> int:
    parser = campaign_parser(__doc__, COUNTS)
    parser.add_argument("--queue", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--ref", default=PREVIOUS, help="commit of the previous version")
    options = parser.parse_args()
    began = time.perf_counter()
    counts = scaled_counts(options, COUNTS)
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        found = campaign(Path(folder), counts, options.seed, options.queue, options.ref, say=print_line)
    return report(f"chaos-versions over {options.queue}", sum(counts.values()), found, began)


if __name__ == "__main__":
    sys.exit(main())
