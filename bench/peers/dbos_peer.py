"""DBOS: steps recorded in PostgreSQL, in one process; a fan-out enqueues one workflow per item."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dbos import DBOS
from figures import CHAIN_STEPS, arguments, measure_chains, measure_fan, measure_latency

QUEUE = "items"


@DBOS.step()
def step(value: int) -> int:
    return value + 1


@DBOS.workflow()
def steps_of(start: int, steps: int) -> int:
    value = start
    for _ in range(steps):
        value = step(value)
    return value


@DBOS.workflow()
def fan(items: int) -> int:
    handles = [DBOS.enqueue_workflow(QUEUE, step, i) for i in range(items)]
    return sum(handle.get_result() for handle in handles)


def main() -> None:
    given = arguments()
    DBOS(config={"name": "peer", "system_database_url": given.postgres, "log_level": "ERROR"})
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.1)
    try:
        measure_latency(lambda steps: steps_of(0, steps), 1, given.samples)
        measure_latency(lambda steps: steps_of(0, steps), 3, given.samples)
        measure_chains(lambda start: steps_of(start, CHAIN_STEPS), given.chains)
        measure_fan(lambda items: DBOS.start_workflow(fan, items).get_result(), given.items)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()
