"""Random definitions end as in the oracle with and without chunks of items, for each number of workers."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rune.core.definition.parser import parse_document
from rune.core.execution.inline_run import pure_items
from rune.core.plan.compiler import compile_definition
from rune.runtime.worker.item_chunks import ItemChunks
from rune.settings import Settings
from rune.testing.harness import Harness, harness
from tests.simulation.effect import sim_registry
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.support.backends import open_engines, stores
from tests.support.differential import difference
from tests.support.whole import WHOLE

COUNT = 100 if WHOLE else 8
AT_ONCE = 20
"""More at once would make a slow machine exceed the deadline of an execution."""

DEADLINE = 600.0
"""s after which an execution counts as hung. Three nested splits have up to 47,000 items."""

REPEAT = 12
"""Lists of the start payload are this much longer, so that there are chunks of many items."""

FIRST_SEED = 90_000
TIMED = {"race", "timeout", "cancel_losers", "max_in_flight"}


@cache
def seeds() -> tuple[int, ...]:
    """Seeds of definitions with items that run in chunks and with a result that does not depend on timing."""
    catalogue, seed = sim_registry().catalogue, FIRST_SEED
    found: list[int] = []
    while len(found) < COUNT:
        model, start = random_model(seed)
        if "aggregator" in model.features and not model.features & TIMED and start["xs"]:
            parsed = parse_document(json.dumps(to_document(model)))
            assert parsed.definition is not None
            if pure_items(compile_definition(parsed.definition, catalogue)):
                found.append(seed)
        seed += 1
    return tuple(found)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of items in each commit of a chunk."""
    sizes: list[int] = []
    original = ItemChunks._record

    async def record(self: ItemChunks, data: Any, chunk: Any, runs: Any) -> Any:
        sizes.append(len(runs))
        return await original(self, data, chunk, runs)

    monkeypatch.setattr(ItemChunks, "_record", record)
    return sizes


@pytest.fixture(scope="module")
def redis_stores(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return stores(tmp_path_factory.mktemp("stores"))


async def _differences(opened: AbstractAsyncContextManager[Harness]) -> list[str]:
    found: list[str] = []
    async with opened as engine:
        for first in range(0, COUNT, AT_ONCE):
            batch = seeds()[first : first + AT_ONCE]
            runs = (difference(engine, seed, repeat=REPEAT, deadline=DEADLINE) for seed in batch)
            differences = await asyncio.gather(*runs)
            found += filter(None, differences)
    return found


@pytest.mark.parametrize("chunk", [64, 1])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_embedded_engine_ends_as_in_oracle(tmp_path: Path, chunks: list[int], slots: int, chunk: int) -> None:
    opened = harness(tmp_path, registry=sim_registry(), slots=slots, chunk=chunk)
    assert asyncio.run(_differences(opened)) == []
    assert (max(chunks, default=0) > 1) == (chunk > 1)


@pytest.mark.parametrize("chunk", [64, 1])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_on_redis_end_as_in_oracle(
    redis_stores: Settings, chunks: list[int], workers: int, chunk: int
) -> None:
    opened = open_engines(redis_stores, count=workers, registry=sim_registry(), chunk=chunk)
    assert asyncio.run(_differences(opened)) == []
    assert (max(chunks, default=0) > 1) == (chunk > 1)


def test_workers_with_and_without_chunks_share_executions(redis_stores: Settings, chunks: list[int]) -> None:
    async def go() -> list[str]:
        alone = open_engines(redis_stores, count=1, registry=sim_registry(), chunk=1)
        async with alone:
            return await _differences(open_engines(redis_stores, count=1, registry=sim_registry(), chunk=64))

    assert asyncio.run(go()) == []
    assert max(chunks, default=0) > 1
