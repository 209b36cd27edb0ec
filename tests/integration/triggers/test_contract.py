"""Both stores of triggers keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.postgres.stores import postgres
from rune.adapters.postgres.triggers import PostgresTriggers
from rune.adapters.sqlite.triggers import SqliteTriggers
from tests.contract.suites.trigger import TriggerContract
from tests.contract.test_embedded import left_on_disk, opened
from tests.support.services.databases import dsn_of, left_behind, ready


class TestEmbedded(TriggerContract):
    @asynccontextmanager
    async def make_triggers(self, folder: Path) -> AsyncIterator[SqliteTriggers]:
        async with opened(folder) as embedded:
            yield SqliteTriggers(embedded.database)

    def crashed(self, folder: Path) -> Path:
        return left_on_disk(folder)


class TestPostgres(TriggerContract):
    @pytest.fixture(autouse=True)
    def _running(self) -> None:
        ready()

    @asynccontextmanager
    async def make_triggers(self, folder: Path) -> AsyncIterator[PostgresTriggers]:
        async with postgres(dsn_of(folder)) as found:
            yield PostgresTriggers(found.database)

    def crashed(self, folder: Path) -> Path:
        return left_behind(folder)
