"""Random definitions on clusters, many at once, each compared with the oracle."""

from __future__ import annotations

import asyncio
import os

import pytest

from rune.testing.harness import Harness
from tests.support.clusters import Cluster
from tests.support.differential import difference

CONCURRENCY = 40
_REDIS = int(os.environ.get("RUNE_DIFFERENTIAL_CLUSTER", "1000")) // 2
_RABBITMQ = int(os.environ.get("RUNE_DIFFERENTIAL_RABBITMQ", "500")) // 2
SEEDS = {
    "redis-in_place": range(50_000, 50_000 + _REDIS),
    "redis-travelling": range(60_000, 60_000 + _REDIS),
    "rabbitmq-in_place": range(70_000, 70_000 + _RABBITMQ),
    "rabbitmq-travelling": range(80_000, 80_000 + _RABBITMQ),
}


@pytest.mark.parametrize(("cluster", "seeds"), SEEDS.items(), ids=list(SEEDS), indirect=["cluster"])
def test_random_definition_ends_as_in_oracle(cluster: Cluster, seeds: range) -> None:
    assert asyncio.run(_differences(cluster, seeds)) == []


async def _differences(cluster: Cluster, seeds: range) -> list[str]:
    window = asyncio.Semaphore(CONCURRENCY)
    async with cluster.connect() as (engine, _):
        harness = Harness(engine, None)

        async def one(seed: int) -> str | None:
            async with window:
                return await difference(harness, seed)

        return [each for each in await asyncio.gather(*map(one, seeds)) if each]
