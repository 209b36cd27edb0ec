"""Random SIGKILLs of a loaded embedded engine: `python -m tests.chaos.embedded --kills 1000 [--seed 1]`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.load import NODES, SLOTS, Keys
from tests.support.forked_rune import PATHS, ForkedRune
from tests.support.paths import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "RUNE_NODES": ",".join(NODES)}


def spawn(home: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a loaded engine in a separate process."""
    command = [sys.executable, "-m", "tests.chaos.load", str(home), *options]
    environment = {**ENVIRONMENT, "RUNE_TEST_LEDGER": str(home / "ledger")}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def kill_once(home: Path, rng: Random) -> int:
    """Kill the engine a random moment after it has reported progress; return how many executions ended."""
    with spawn(home) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"the loaded engine ended by itself with {process.wait()}")
        threading.Event().wait(rng.uniform(0.01, 0.3))
        process.kill()
        return 1 + len(process.stdout.read().splitlines())


def check(home: Path, kills: int) -> tuple[int, list[str]]:
    """Run all executions to their end; return their number and the violations."""
    with spawn(home, "--drain") as process:
        if process.wait(timeout=180) != 0:
            return 0, ["acknowledged executions did not end"]
    acked = Keys(home).acked
    report = audit(home)
    violations = [f"{each}" for each in report["problems"]] if "problems" in report else []
    if report["violations"]:
        violations.append(f"the audit found {report['violations']} violations: {report}")
    if report["open"]:
        violations.append(f"{report['open']} tokens are open in executions that have ended")
    if report["executions"] != len(acked):
        violations.append(
            f"{len(acked)} starts were acknowledged, the file holds {report['executions']} executions"
        )
    return len(acked), violations + _effects(home, set(acked.values()), kills)


def audit(home: Path) -> dict[str, Any]:
    """Return the report of `rune verify --all` for a home."""
    with tempfile.TemporaryDirectory(prefix="rune-audit-") as folder:
        _, out, _ = ForkedRune(Path(folder)).rune(
            "verify", "--all", "--json", **{**ENVIRONMENT, "RUNE_HOME": str(home)}
        )
    report: dict[str, Any] = json.loads(out)
    return {**report, **report.get("totals", {})}


def _effects(home: Path, executions: set[str], kills: int) -> list[str]:
    """Check the number of repeated effects: at most one per slot and kill, if the kill came between effect and row."""
    calls = Counter((home / "ledger").read_text().split())
    unknown = {key.split(":", 1)[0] for key in calls} - executions
    repeats = sum(count - 1 for count in calls.values())
    violations = [f"effects of executions that were not started: {sorted(unknown)[:5]}"] if unknown else []
    if repeats > kills * SLOTS:
        violations.append(f"{repeats} effects were repeated by {kills} kills of {SLOTS} slots")
    return violations


def chaos(home: Path, kills: int, seed: int) -> tuple[int, list[str]]:
    """Kill and restart the engine repeatedly, then check."""
    rng = Random(seed)
    for _ in range(kills):
        kill_once(home, rng)
    return check(home, kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        executions, violations = chaos(Path(folder), options.kills, options.seed)
    for each in violations[:10]:
        print(each)
    took = time.perf_counter() - began
    print(
        f"chaos: {options.kills:,} kills, {executions:,} executions, {len(violations)} violations, {took:.0f} s"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
