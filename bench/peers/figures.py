"""The jobs that every engine runs, and how their figures are printed. Used by each program of this folder, so it needs
the standard library only.

    chain      workflows of 10 steps, many at once: steps per second
    fan        one step per item of a list, then one step that collects them: items per second
    latency-1  one step on an idle engine, from start to result: median in ms
    latency-3  three steps on an idle engine

A step returns its input plus one. Each program prints one JSON line per job.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

CHAIN_STEPS = 10
CONCURRENCY = 100
WARM_UP = 5


def arguments() -> argparse.Namespace:
    """Parse the arguments that the runner passes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--redis", default="", help="URL of a Redis server")
    parser.add_argument("--postgres", default="", help="URL of a PostgreSQL database")
    parser.add_argument("--folder", default=".", help="an empty folder for files")
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--samples", type=int, default=50)
    return parser.parse_args()


def report(job: str, value: float, unit: str) -> None:
    """Print the figure of a job."""
    print(json.dumps({"job": job, "value": round(value, 2), "unit": unit}), flush=True)


def measure_chains(run: Callable[[int], int], count: int) -> None:
    """Run `count` chains, up to `CONCURRENCY` at the same time. `run` returns the result of a chain."""
    with ThreadPoolExecutor(min(CONCURRENCY, count)) as threads:
        list(threads.map(run, range(WARM_UP)))
        began = time.perf_counter()
        results = list(threads.map(run, range(count)))
        seconds = time.perf_counter() - began
    check(results, (i + CHAIN_STEPS for i in range(count)))
    report("chain", count * CHAIN_STEPS / seconds, "steps/s")


def measure_fan(run: Callable[[int], int], items: int) -> None:
    """Run one fan-out. `run` returns the sum of the results of all items."""
    run(WARM_UP)
    began = time.perf_counter()
    total = run(items)
    seconds = time.perf_counter() - began
    check([total], [sum(range(1, items + 1))])
    report("fan", items / seconds, "items/s")


def measure_latency(run: Callable[[int], int], steps: int, samples: int) -> None:
    """Run workflows one after the other. `run` returns the result of one with `steps` steps that starts with 0."""
    took: list[float] = []
    for number in range(WARM_UP + samples):
        began = time.perf_counter()
        check([run(steps)], [steps])
        if number >= WARM_UP:
            took.append((time.perf_counter() - began) * 1000)
    report(f"latency-{steps}", statistics.median(took), "ms")


def check(results: Iterable[int], expected: Iterable[int]) -> None:
    """Raise an error if an engine returned something else than the right results."""
    if list(results) != list(expected):
        raise AssertionError("the engine returned wrong results")


def quiet() -> dict[str, str]:
    """Return the environment of a program without its telemetry to other hosts."""
    return {
        **os.environ,
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_TEMPLATES_ENABLED": "false",
        "N8N_PERSONALIZATION_ENABLED": "false",
    }
