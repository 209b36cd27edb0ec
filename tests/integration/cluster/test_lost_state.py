"""After Redis has lost its data, an execution goes on with what is open, whatever else of it waits for hours."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.execution.fact import SignalReceived
from tests.support.backends import (
    UNSERVED_QUEUE,
    ClusterBackend,
    backends,
    end_status,
    flush_redis,
    until_suspended,
)
from tests.support.workflows import Fields, edit, of_type, recording_registry, wait, wait_for_signal, workflow

RACE = of_type("merge", wait_mode="wait_for_any", cancel_losers=True)
UNSERVED = {**of_type("t.call"), "queue": UNSERVED_QUEUE}

OPEN: dict[str, tuple[Fields, str]] = {
    "ready branch": (workflow("start>w start>a w>m a>m", w=wait(1), a=UNSERVED, m=RACE), "completed"),
    "ready item": (
        workflow(
            "start>w start>s s>a a>g w>m g>m",
            w=wait(1),
            s=of_type("split", input_array=[1, 2]),
            a=UNSERVED,
            g=of_type("aggregator"),
            m=RACE,
        ),
        "completed",
    ),
    "earlier wait": (
        workflow("start>w start>v w>m v>m", w=wait(1), v=wait(2, "seconds"), m=RACE),
        "completed",
    ),
    "earlier timeout of a join": (
        workflow("start>w start>a w>m a>m", w=wait(1), a=edit(x=1), m=of_type("merge", timeout=2)),
        "failed",
    ),
    "earlier timeout of the execution": (workflow("start>w", {"timeout": 2}, w=wait(1)), "failed"),
    "signal that was recorded": (
        workflow("start>w start>l w>m l>m", w=wait(1), l=wait_for_signal(), m=RACE),
        "completed",
    ),
}


@pytest.mark.parametrize("case", OPEN)
@backends("redis")
def test_execution_with_waiting_branch_goes_on_after_loss(backend: ClusterBackend, case: str) -> None:
    document, status = OPEN[case]
    calls: list[str] = []
    registry = recording_registry(calls)

    async def go() -> str:
        async with backend.open(registry=registry) as engine:
            run = await engine.start(document)
            waits = sum(each["type"] == "wait" for each in document["nodes"])
            await until_suspended(run, waits)
            if "signal" in case:
                signal = SignalReceived(at=run.accepted.at + 1, id="s1", name="go")
                await engine.engine.backend.journal.record(run.id, [signal])
        await flush_redis()
        async with backend.open(registry=registry, queues=("default", UNSERVED_QUEUE)) as engine:
            return await end_status(engine, run.id)

    assert asyncio.run(go()) == status
    assert len(calls) == len(set(calls))
