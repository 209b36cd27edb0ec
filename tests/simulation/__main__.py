"""Run many seeds: `python -m tests.simulation --seeds 100000 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.handwritten import HANDWRITTEN_INTERVAL
from tests.simulation.run import run_seed

BatchResult = tuple[Counter[str], Counter[str], list[tuple[int, str]]]


def batch(seeds: range, stop: bool = False) -> BatchResult:
    """Run a range of seeds, up to the first violation if `stop`. Returns end statuses, event counts and violations."""
    ends: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    violations: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            ends[run_seed(seed, tally)] += 1
        except Exception:
            violations.append((seed, traceback.format_exc(limit=-3)))
            if stop:
                break
    return ends, tally, violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--stop", action="store_true", help="stop at the first violation (one job)")
    parser.add_argument("--handwritten", action="store_true", help="only seeds that run a handwritten model")
    options = parser.parse_args()
    started = time.perf_counter()
    ends: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    violations: list[tuple[int, str]] = []
    chunk = max(1, min(500, options.seeds // options.jobs))
    last = options.first + options.seeds
    step = HANDWRITTEN_INTERVAL if options.handwritten else 1
    seeds = range(step - 1, step * last, step)
    ranges = [seeds[i : min(i + chunk, last)] for i in range(options.first, last, chunk)]
    if options.stop:
        ends, tally, violations = batch(seeds[options.first :], stop=True)
        ranges = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for batch_ends, batch_tally, batch_violations in pool.map(batch, ranges):
            ends += batch_ends
            tally += batch_tally
            violations += batch_violations
    seconds = time.perf_counter() - started
    for seed, trace in violations[:5]:
        print(f"seed {seed}: {trace}")
    rate = options.seeds / seconds * 60 / options.jobs
    print(f"simulator: {options.seeds:,} seeds run, {len(violations)} violations, ends {dict(ends)}")
    print(f"simulator: {', '.join(f'{name} {count:,}' for name, count in sorted(tally.items()))}")
    print(f"simulator: {seconds:.1f} s, {rate:,.0f} executions per minute and core")
    if violations:
        print("seeds with violations:", *(seed for seed, _ in violations[:20]))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
