"""A worker keeps no data of executions that have ended, wherever they ended."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.waiting import until
from tests.support.whole import WHOLE
from tests.support.workflows import edit, of_type, split, workflow

pytestmark = pytest.mark.long

EXECUTIONS = 3_000 if WHOLE else 150
IN_FLIGHT = 50 if WHOLE else 15
TIMEOUT_S = 25.0  # less than the time after which idle executions are dropped
DOCUMENT = workflow(
    "start>a a>s s>b b>g g>out",
    a=edit(text="{{ 'x' * 1000 }}"),
    s=split("{{ range(3) }}"),
    b=edit(text="{{ $a.text + str($index) }}"),
    g=of_type("aggregator"),
    out=of_type("output", value="{{ len($g) }}"),
)


@backends("embedded", "redis-travelling", "rabbitmq-travelling")
def test_ended_executions_leave_the_cache_of_every_worker(backend: Backend) -> None:
    """Tokens of an execution run in two engines; the one that does not end it hears of the end."""

    async def go() -> int:
        async with AsyncExitStack() as stack:
            count = 1 if backend.settings.state == "embedded" else 2
            engines = [await stack.enter_async_context(backend.open()) for _ in range(count)]
            most = await _run_all(engines[0], engines)
            await until(
                lambda: not any(_cached(each) or each.engine.data_cache.value_bytes for each in engines),
                "no execution and no value is cached",
                TIMEOUT_S,
            )
            return most

    assert asyncio.run(go()) <= 4 * IN_FLIGHT


def _cached(harness: Harness) -> int:
    return len(harness.engine.data_cache)


async def _run_all(starter: Harness, engines: list[Harness]) -> int:
    """Run all executions and return the largest number that a worker had cached."""
    most, left = 0, EXECUTIONS

    async def run() -> None:
        nonlocal most, left
        while left > 0:
            left -= 1
            assert (await (await starter.start(DOCUMENT)).end()).status == "completed"
            most = max(most, *map(_cached, engines))

    await asyncio.gather(*(run() for _ in range(IN_FLIGHT)))
    return most
