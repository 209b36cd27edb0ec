"""Run many seeds: `python -m tests.simulation --seeds 100000 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.known import EVERY
from tests.simulation.run import run_seed

Lot = tuple[Counter[str], Counter[str], list[tuple[int, str]]]


def batch(seeds: range, stop: bool = False) -> Lot:
    """Run a range of seeds, to the first that breaks a promise if `stop`. How they ended, what occurred, what broke."""
    ends: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            ends[run_seed(seed, tally)] += 1
        except Exception:
            broken.append((seed, traceback.format_exc(limit=-3)))
            if stop:
                break
    return ends, tally, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--stop", action="store_true", help="stop at the first violation (one job)")
    parser.add_argument("--known", action="store_true", help="only seeds that run a definition made by hand")
    options = parser.parse_args()
    began = time.perf_counter()
    ends: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    chunk = max(1, min(500, options.seeds // options.jobs))
    last = options.first + options.seeds
    seeds = range(EVERY - 1, EVERY * last, EVERY) if options.known else range(last)
    ranges = [seeds[i : min(i + chunk, last)] for i in range(options.first, last, chunk)]
    if options.stop:
        ends, tally, broken = batch(seeds[options.first :], stop=True)
        ranges = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for some_ends, some_tally, some_broken in pool.map(batch, ranges):
            ends += some_ends
            tally += some_tally
            broken += some_broken
    took = time.perf_counter() - began
    for seed, what in broken[:5]:
        print(f"seed {seed}: {what}")
    rate = options.seeds / took * 60 / options.jobs
    print(f"simulator: {options.seeds:,} seeds run, {len(broken)} violations, ends {dict(ends)}")
    print(f"simulator: {', '.join(f'{name} {count:,}' for name, count in sorted(tally.items()))}")
    print(f"simulator: {took:.1f} s, {rate:,.0f} executions a minute a core")
    if broken:
        print("broken seeds:", *(seed for seed, _ in broken[:20]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
