"""Celery: tasks over Redis, results in Redis, acknowledged after they ran, two worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from celery import Celery, chain, chord
from figures import CHAIN_STEPS, arguments, measure_chains, measure_fan, measure_latency, quiet

REDIS = os.environ.get("PEER_REDIS", "")
app = Celery("celery_peer", broker=REDIS, backend=REDIS)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    result_expires=3600,
    broker_connection_retry_on_startup=True,
)


@app.task
def step(value: int) -> int:
    return value + 1


@app.task
def collect(values: list[int]) -> int:
    return sum(values)


def run_chain(start: int, steps: int = CHAIN_STEPS) -> int:
    signature = chain(step.s(start), *(step.s() for _ in range(steps - 1)))
    return int(signature.apply_async().get(timeout=300))


def run_fan(items: int) -> int:
    return int(chord([step.s(i) for i in range(items)], collect.s()).apply_async().get(timeout=600))


def main() -> None:
    given = arguments()
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "-c", "2", "-l", "ERROR"],
        cwd=Path(__file__).resolve().parent,
        env=quiet(),
    )
    try:
        measure_latency(lambda steps: run_chain(0, steps), 1, given.samples)
        measure_latency(lambda steps: run_chain(0, steps), 3, given.samples)
        measure_chains(run_chain, given.chains)
        measure_fan(run_fan, given.items)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
