"""Measures how long the command line takes for `rune --version`, `rune list` and `rune run` of the smallest example.

Beside them stands an interpreter that runs an empty program. Other working trees can be named to compare them in the
same run; the rounds alternate between the trees, with bytecode that a first round has written.

python bench/startup.py [--rounds 10] [TREE ...]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HELLO = Path("examples", "hello", "hello.yaml")
COMMANDS = {
    "python -c pass": [],
    "rune --version": ["--version"],
    # Before `rune list`, which refuses a home that no run has created.
    "rune run hello": ["run", str(HELLO), "--input", '{"name": "Ada"}'],
    "rune list": ["list"],
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE")
    options = parser.parse_args()
    trees = [each.resolve() for each in [*options.trees, ROOT]]
    before = os.getloadavg()[0]
    figures: dict[tuple[str, Path], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(options.rounds + 1):
            for number, tree in enumerate(trees):
                for command, arguments in COMMANDS.items():
                    milliseconds = measure(tree, arguments, Path(folder, str(number)))
                    if round_number:
                        figures.setdefault((command, tree), []).append(milliseconds)
    print(
        f"load of the machine: {before:.1f} at the start, {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} CPUs"
    )
    for command in COMMANDS:
        for tree in trees:
            found = figures[command, tree]
            name = tree.name if len(trees) > 1 else ""
            print(
                f"{command:16} {name:16} median {statistics.median(found):5.0f} ms, min {min(found):5.0f} ms"
            )
    return 0


def measure(tree: Path, arguments: list[str], home: Path) -> float:
    """Run a command of a working tree and return its duration in milliseconds."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(tree / "src"), "RUNE_HOME": str(home)}
    program = ["-m", "rune", *arguments] if arguments else ["-c", "pass"]
    started = time.perf_counter()
    subprocess.run([sys.executable, *program], cwd=tree, env=environment, check=True, capture_output=True)
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
