"""Random definitions over two workers, many at once, each held against the oracle."""

from __future__ import annotations

import asyncio
import os

import pytest

from rune.testing.harness import Harness
from tests.integration.cluster.standing import Standing
from tests.integration.embedded.differential import difference

TOTAL = int(os.environ.get("RUNE_DIFFERENTIAL_CLUSTER", "1000"))
AT_ONCE = 40
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
                return await difference(harness, seed)

        return [each for each in await asyncio.gather(*map(one, seeds)) if each]
