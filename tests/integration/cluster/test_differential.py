"""Random definitions on clusters, many at once, each compared with the oracle."""

from __future__ import annotations

import asyncio

import pytest

from rune.testing.harness import Harness
from tests.support.clusters import Cluster
from tests.support.differential import difference
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

CONCURRENCY = 40
COUNTS = {
    "redis-in_place": 150,
    "redis-travelling": 150,
    "rabbitmq-in_place": 100,
    "rabbitmq-travelling": 100,
    "redis-alone": 40,
    "redis-four": 40,
    "redis-sent": 40,
    "redis-single": 40,
    "rabbitmq-sticky": 40,
}
"""Definitions per cluster: two workers; one and four; without staying; without chunks; staying on RabbitMQ.
RUNE_WHOLE=1 runs 2,000 on each."""

SEEDS = {
    name: range(50_000 + 10_000 * at, 50_000 + 10_000 * at + (2_000 if WHOLE else count))
    for at, (name, count) in enumerate(COUNTS.items())
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
