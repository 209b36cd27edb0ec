"""Common parts of the campaigns against a cluster: options, final checks and the report."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.breakable_cluster import BreakableCluster
from tests.chaos.cluster_checks import Findings, check_cluster, copy_logs
from tests.support.services.rabbitmq import new_broker


def campaign_parser(description: str | None, counts: Mapping[str, int]) -> argparse.ArgumentParser:
    """Return a parser with an option for the count of each kind of fault."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for kind, count in counts.items():
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def scaled_counts(options: argparse.Namespace, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the count of each kind of fault."""
    return {kind: round(getattr(options, kind) * options.scale) for kind in counts}


def settle_and_check(
    cluster: BreakableCluster, violations: list[str], logs: str, *, cleanup_timeout_s: float
) -> Findings:
    """Wait for the end of all executions and check. `violations`: found before; `logs`: the folder for logs."""
    found = check_cluster(cluster, cluster.drain(), cleanup_timeout_s=cleanup_timeout_s)
    found.violations[:0] = violations
    if found.violations:
        copy_logs(cluster, Path(tempfile.gettempdir()) / logs)
    return found


def print_line(line: str) -> None:
    """Print and flush."""
    print(line, flush=True)


def report(name: str, faults: int, found: Findings, began: float) -> int:
    """Print the findings and return the exit code."""
    for each in found.violations[:20]:
        print(each)
    took = time.perf_counter() - began
    print(
        f"{name}: {faults:,} faults, {found.executions:,} executions, {found.effects:,} effects,"
        f" {found.repeated:,} repeated before their row, {len(found.violations)} violations, {took:.0f} s"
    )
    return 1 if found.violations else 0


@contextmanager
def queue_environment(kind: str) -> Iterator[dict[str, str]]:
    """Yield the variables that select the queue."""
    if kind == "redis":
        yield {}
        return
    broker = new_broker()
    try:
        yield {"RUNE_QUEUE": broker.url()}
    finally:
        broker.stop()
