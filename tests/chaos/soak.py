"""Memory of the processes of an engine under a constant load:

python -m tests.chaos.soak --minutes 30 [--backend embedded|redis|rabbitmq]

The memory of each process is sampled while the load runs. It has to level off: the mean of the last third must not be
more than 5 % above the mean of the third before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.breakable_cluster import breakable_cluster, pause
from tests.chaos.campaigns import print_line
from tests.support.paths import ROOT
from tests.support.services.rabbitmq import new_broker

PERIOD_S = 2.0
MAX_GROWTH = 1.05
SLACK_MB = 4.0  # what an allocator may keep
MIN_SAMPLES = 9

Samples = dict[str, list[float]]
"""Memory in MB by process, oldest first."""


def resident_mb(process: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


@contextmanager
def _embedded(folder: Path) -> Iterator[tuple[dict[str, int], Callable[[], int]]]:
    log = folder / "load.log"
    command = ["setpriv", "--pdeathsig=KILL", sys.executable, "-m", "tests.chaos.load", str(folder)]
    environment = {"RUNE_TEST_LEDGER": str(folder / "ledger")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=out, stderr=out
        )
    try:
        yield {"engine": process.pid}, lambda: log.read_text().count("\n")
    finally:
        process.kill()
        process.wait()


@contextmanager
def _cluster(folder: Path, backend: str) -> Iterator[tuple[dict[str, int], Callable[[], int]]]:
    with ExitStack() as stack:
        environment = {}
        if backend == "rabbitmq":
            broker = new_broker()
            stack.callback(broker.stop)
            environment["RUNE_QUEUE"] = broker.url()
        cluster = stack.enter_context(
            breakable_cluster(folder, workers=2, schedulers=1, environment=environment)
        )
        cluster.load()
        counts: dict[str, int] = {}
        processes = {}
        for each in cluster.fleet.processes:
            counts[each.role] = counts.get(each.role, 0) + 1
            processes[f"{each.role} {counts[each.role]}"] = each.process.pid
        yield processes, cluster.ended


def soak(
    folder: Path, backend: str, minutes: float, *, say: Callable[[str], None] = print
) -> tuple[Samples, int]:
    """Sample the memory of all processes; return the samples and the number of ended executions."""
    samples: Samples = {}
    opened = _embedded(folder) if backend == "embedded" else _cluster(folder, backend)
    with opened as (processes, ended):
        until, said = time.monotonic() + minutes * 60, time.monotonic()
        while time.monotonic() < until:
            pause(PERIOD_S)
            for name, process in processes.items():
                samples.setdefault(name, []).append(resident_mb(process))
            if time.monotonic() - said >= 60:
                said = time.monotonic()
                now = ", ".join(f"{name} {each[-1]:.0f} MB" for name, each in samples.items())
                say(f"{ended():,} executions ended, {now}")
        return samples, ended()


def grown(samples: list[float]) -> tuple[float, float]:
    """Return the mean memory of the second and of the last third."""
    third = len(samples) // 3
    return sum(samples[third : 2 * third]) / third, sum(samples[-third:]) / third


def violations(samples: Samples) -> list[str]:
    """Return the processes whose memory does not level off."""
    found = []
    for name, each in samples.items():
        if len(each) < MIN_SAMPLES:
            found.append(f"{name}: {len(each)} samples are too few")
            continue
        before, after = grown(each)
        if after > before * MAX_GROWTH + SLACK_MB:
            found.append(f"{name} grew from {before:.1f} to {after:.1f} MB in a third of the time")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--backend", choices=("embedded", "redis", "rabbitmq"), default="rabbitmq")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rune-soak-") as folder:
        samples, ended = soak(Path(folder), options.backend, options.minutes, say=print_line)
    found = violations(samples)
    for each in found:
        print(each)
    means = {name: grown(each) for name, each in samples.items() if len(each) >= MIN_SAMPLES}
    shown = ", ".join(f"{name} {before:.1f} -> {after:.1f} MB" for name, (before, after) in means.items())
    print(f"soak ({options.backend}): {options.minutes:g} min, {ended:,} executions, {shown}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
