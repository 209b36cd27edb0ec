"""The cache of compiled plans."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.definition.model import canonical
from rune.runtime.plan_cache import DefinitionNotFoundError, PlanCache
from tests.support.plans import CATALOGUE, plan


class CountingJournal:
    """Returns one definition, after every caller had the time to ask for it."""

    def __init__(self) -> None:
        self.stored = plan("start -> b")
        self.reads = 0

    async def definition(self, hash: str) -> bytes | None:
        self.reads += 1
        await asyncio.sleep(0)
        return canonical(self.stored.definition) if hash == self.stored.hash else None


def cache(journal: Any) -> PlanCache:
    return PlanCache(journal, CATALOGUE)


def test_concurrent_calls_load_a_definition_once() -> None:
    journal = CountingJournal()
    plans = cache(journal)

    async def load() -> list[Any]:
        return await asyncio.gather(*(plans.plan(journal.stored.hash) for _ in range(20)))

    found = asyncio.run(load())
    assert journal.reads == 1
    assert len({id(each) for each in found}) == 1
    assert found[0].hash == journal.stored.hash


def test_cancelled_call_does_not_cancel_the_others() -> None:
    journal = CountingJournal()
    plans = cache(journal)

    async def load() -> Any:
        first, second = (asyncio.create_task(plans.plan(journal.stored.hash)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(load()).hash == journal.stored.hash


def test_unknown_definition_fails_every_call_and_is_looked_up_again() -> None:
    journal = CountingJournal()
    plans = cache(journal)

    async def load() -> list[Any]:
        return await asyncio.gather(*(plans.plan("unknown") for _ in range(3)), return_exceptions=True)

    assert all(isinstance(each, DefinitionNotFoundError) for each in asyncio.run(load()))
    with pytest.raises(DefinitionNotFoundError):
        asyncio.run(plans.plan("unknown"))
    assert journal.reads == 2
