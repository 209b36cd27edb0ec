"""Compares http nodes with a bare client: `python bench/http.py [rounds] [scale]`.

Each round runs the measure `http-64` of `rune bench` in a separate process. Load on the machine shifts every rate, so
the result is the ratio to the bare client of the same round, as the median of the rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys


def measure(name: str, scale: str) -> dict[str, float]:
    command = [sys.executable, "-m", "rune.cli.bench", name, scale]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def main(rounds: int = 5, scale: str = "0.5") -> None:
    ratios = []
    for number in range(1, rounds + 1):
        found = measure("http-64", scale)
        ratios.append(found["ratio"])
        print(
            f"round {number}: {found['rate']:,.0f} requests/s through the engine, {found['limit']:,.0f} without, "
            f"{found['ratio']:.0%}"
        )
    held = measure("http-1000", "1")
    print(f"median ratio {statistics.median(ratios):.0%}, best {max(ratios):.0%}")
    print(f"1,000 concurrent requests: {held['rss_mb']:.0f} MB")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 5, given[1] if len(given) > 1 else "0.5")
