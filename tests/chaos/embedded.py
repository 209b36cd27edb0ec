"""Kill -9 at random instants: `python -m tests.chaos.embedded --kills 1000 [--seed 1]`."""

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
from tests.integration.embedded.forks import PATHS, Forks
from tests.support.paths import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "RUNE_NODES": ",".join(NODES)}


def spawn(home: Path, *options: str) -> subprocess.Popen[bytes]:
    """A loaded engine in a process of its own."""
    command = [sys.executable, "-m", "tests.chaos.load", str(home), *options]
    environment = {**ENVIRONMENT, "RUNE_TEST_LEDGER": str(home / "ledger")}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def kill_once(home: Path, rng: Random) -> int:
    """Let it work until it reports progress, and a random moment longer; then it is gone. How many it ended."""
    with spawn(home) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"the loaded engine ended by itself with {process.wait()}")
        threading.Event().wait(rng.uniform(0.01, 0.3))
        process.kill()
        return 1 + len(process.stdout.read().splitlines())


def verdict(home: Path, kills: int) -> tuple[int, list[str]]:
    """After the last restart everything runs to its end; how many executions there are, and what is wrong."""
    with spawn(home, "--drain") as process:
        if process.wait(timeout=180) != 0:
            return 0, ["not everything that was acknowledged came to an end"]
    acked = Keys(home).acked
    report = audited(home)
    wrong = [f"{each}" for each in report["problems"]] if "problems" in report else []
    if report["violations"]:
        wrong.append(f"the audit found {report['violations']} violations: {report}")
    if report["open"]:
        wrong.append(f"{report['open']} tokens are open in executions that have ended")
    if report["executions"] != len(acked):
        wrong.append(
            f"{len(acked)} starts were acknowledged, the file holds {report['executions']} executions"
        )
    return len(acked), wrong + _effects(home, set(acked.values()), kills)


def audited(home: Path) -> dict[str, Any]:
    """What `rune audit --all` says of a home."""
    with tempfile.TemporaryDirectory(prefix="rune-said-") as folder:
        _, out, _ = Forks(Path(folder)).rune(
            "audit", "--all", "--json", **{**ENVIRONMENT, "RUNE_HOME": str(home)}
        )
    report: dict[str, Any] = json.loads(out)
    return {**report, **report.get("totals", {})}


def _effects(home: Path, executions: set[str], kills: int) -> list[str]:
    """An effect may repeat only if a kill fell between it and its row: so many at most as can be under way."""
    calls = Counter((home / "ledger").read_text().split())
    strangers = {key.split(":", 1)[0] for key in calls} - executions
    repeats = sum(count - 1 for count in calls.values())
    wrong = [f"effects of executions that nobody started: {sorted(strangers)[:5]}"] if strangers else []
    if repeats > kills * SLOTS:
        wrong.append(f"{repeats} effects were repeated by {kills} kills of {SLOTS} slots")
    return wrong


def chaos(home: Path, kills: int, seed: int) -> tuple[int, list[str]]:
    """Kill, restart, kill; then judge."""
    rng = Random(seed)
    for _ in range(kills):
        kill_once(home, rng)
    return verdict(home, kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        executions, wrong = chaos(Path(folder), options.kills, options.seed)
    for each in wrong[:10]:
        print(each)
    took = time.perf_counter() - began
    print(f"chaos: {options.kills:,} kills, {executions:,} executions, {len(wrong)} violations, {took:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
