"""What the campaigns against a cluster have in common: their counts, how they come to rest, and what they say then."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.cluster_verdict import Verdict, kept_logs, verdict
from tests.chaos.stand import Stand


def counting(description: str | None, counts: Mapping[str, int]) -> argparse.ArgumentParser:
    """An option for each kind of fault."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for kind, count in counts.items():
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def scaled(options: argparse.Namespace, counts: Mapping[str, int]) -> dict[str, int]:
    """How many of each were asked for."""
    return {kind: round(getattr(options, kind) * options.scale) for kind in counts}


def rested(broken: Stand, wrong: list[str], logs: str, *, tidy: float) -> Verdict:
    """Let it come to rest and judge. `wrong`: what was seen before; `logs`: where they are kept if anything is."""
    found = verdict(broken, broken.drain(), tidy=tidy)
    found.wrong[:0] = wrong
    if found.wrong:
        kept_logs(broken, Path(tempfile.gettempdir()) / logs)
    return found


def say(line: str) -> None:
    """At once, whoever reads."""
    print(line, flush=True)


def announced(name: str, faults: int, found: Verdict, began: float) -> int:
    """Say what was found; answers the exit code."""
    for each in found.wrong[:20]:
        print(each)
    took = time.perf_counter() - began
    print(
        f"{name}: {faults:,} faults, {found.executions:,} executions, {found.effects:,} effects,"
        f" {found.repeated:,} repeated before their row, {len(found.wrong)} violations, {took:.0f} s"
    )
    return 1 if found.wrong else 0
