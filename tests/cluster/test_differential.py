"""Random definitions over two workers, many at once, each held against the oracle."""

from __future__ import annotations

import asyncio
import os
import traceback

import pytest

from rune.testing.harness import Harness
from tests.cluster.standing import Standing
from tests.oracle.document import to_document
from tests.oracle.generate import random_model
from tests.oracle_check import check_past
from tests.runtime.differential import needs_time, past_of

TOTAL = int(os.environ.get("RUNE_DIFFERENTIAL_CLUSTER", "1000"))
AT_ONCE = 40
PATIENCE = 120.0  # s until one counts as hung
HALVES = {"in_place": range(50_000, 50_000 + TOTAL // 2), "travelling": range(60_000, 60_000 + TOTAL // 2)}


@pytest.mark.parametrize("kind", HALVES)
def test_random_definitions_end_as_the_oracle_says(kind: str, request: pytest.FixtureRequest) -> None:
    stood: Standing = request.getfixturevalue(kind)
    assert asyncio.run(_differences(stood, HALVES[kind])) == []


async def _differences(stood: Standing, seeds: range) -> list[str]:
    window = asyncio.Semaphore(AT_ONCE)
    async with stood.asked() as (engine, _):
        harness = Harness(engine, None)

        async def one(seed: int) -> str | None:
            async with window:
                return await _difference(harness, seed)

        return [each for each in await asyncio.gather(*map(one, seeds)) if each]


async def _difference(harness: Harness, seed: int) -> str | None:
    model, start = random_model(seed)
    try:
        run = await harness.start(to_document(model), start, fake_time=needs_time(model))
        end = await run.end(PATIENCE)
        check_past(await past_of(run, end, start), model)
    except TimeoutError:
        return f"seed {seed}: hung"
    except Exception:
        return f"seed {seed}: {traceback.format_exc(limit=-3)}"
    return None
