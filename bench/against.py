"""Compares the CPU time of the jobs of `rune bench` with that of another commit.

    python bench/against.py COMMIT [--rounds 5] [--scale 0.1] [--only JOB ...] [--json]

The commit is checked out into a temporary worktree with an environment of its own, from its lock. The jobs are those of
this tree. Each round runs a job on both trees, one right after the other and in changing order, so that other work on
the machine concerns both alike. Below 1 this tree needs less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)

from rune.cli.bench.jobs import JOBS

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "bench" / "against_place.py"
USUAL = [name for name in JOBS if not name.endswith("-100k")]
TIMEOUT_S = 600


class Tree(NamedTuple):
    """A checkout, and the interpreter with its dependencies."""

    folder: Path
    python: Path


@contextmanager
def checked_out(commit: str) -> Iterator[Tree]:
    """Check a commit out and install its dependencies; remove both at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="rune-against-") as temporary:
        folder, python = Path(temporary) / "tree", Path(temporary) / "venv" / "bin" / "python"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
            lock = ["--quiet", "--require-hashes", "-r", str(folder / "requirements.lock")]
            subprocess.run([*_installer(python), *lock], check=True)
            yield Tree(folder, python)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _installer(python: Path) -> list[str]:
    """Return the command that installs packages for an interpreter."""
    uv = ROOT / ".venv" / "bin" / "uv"
    if uv.exists():
        return [str(uv), "pip", "install", "--python", str(python)]
    return [str(python), "-m", "pip", "install"]


def measured(tree: Tree, job: str, scale: float) -> dict[str, Any]:
    """Run a job on a tree; return its CPU time per unit, or why there is none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNE_", "PYTHON"))}
    environment = {**kept, "PYTHONPATH": str(tree.folder / "src")}
    command = [str(tree.python), str(PLACE), job, str(scale)]
    with tempfile.TemporaryDirectory(prefix="rune-against-") as folder:
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return {"missing": f"not done after {TIMEOUT_S} s"}
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class Row(NamedTuple):
    """A compared job: the CPU time per unit of both trees in µs, the ratio of each round, and what is missing."""

    job: str
    unit: str
    before: float = 0.0
    now: float = 0.0
    ratios: tuple[float, ...] = ()
    missing: str = ""


def compare(other: Tree, job: str, scale: float, rounds: int) -> Row:
    """Run a job on both trees, so many times each."""
    trees = {"now": Tree(ROOT, Path(sys.executable)), "before": other}
    cpu: dict[str, list[float]] = {"now": [], "before": []}
    unit = JOBS[job].unit.removesuffix("s")
    for number in range(rounds):
        for name in ("before", "now") if number % 2 else ("now", "before"):
            report = measured(trees[name], job, scale)
            if "missing" in report:
                where = "this tree" if name == "now" else "the commit"
                return Row(job, unit, missing=f"{where}: {report['missing']}")
            cpu[name].append(report["cpu_us"])
    ratios = tuple(now / before for now, before in zip(cpu["now"], cpu["before"], strict=True))
    return Row(job, unit, statistics.median(cpu["before"]), statistics.median(cpu["now"]), ratios)


def format_row(row: Row) -> str:
    if row.missing:
        return f"{row.job:18} {row.missing}"
    spread = f"{min(row.ratios):.2f} to {max(row.ratios):.2f}"
    line = f"{row.job:18} {row.before:9,.0f} {row.now:9,.0f} µs per {row.unit:10}"
    return f"{line} ratio {statistics.median(row.ratios):.2f} ({spread})"


def run(commit: str, jobs: Sequence[str], scale: float, rounds: int, *, as_json: bool) -> None:
    rows = []
    with checked_out(commit) as other:
        if not as_json:
            print(f"{'job':18} {'commit':>9} {'now':>9}")
        for job in jobs:
            rows.append(compare(other, job, scale, rounds))
            if not as_json:
                print(format_row(rows[-1]), flush=True)
    if as_json:
        print(json.dumps([row._asdict() for row in rows], indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="what to compare this tree with")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each job on each tree")
    parser.add_argument("--scale", type=float, default=0.1, help="factor for the size of the jobs")
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=USUAL, metavar="JOB")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    run(given.commit, given.only, given.scale, given.rounds, as_json=given.json)


if __name__ == "__main__":
    main()
