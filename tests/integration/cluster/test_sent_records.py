"""The first deliveries of an execution carry its record, so that a worker does not have to look it up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.postgres.journal import PostgresJournal
from rune.ports.retention import Rule
from tests.support.backends import UNSERVED_QUEUE, ClusterBackend, backends, redis_command
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow

CALL = of_type("t.call")
DOCUMENT = workflow("start>a a>b", a=CALL, b=CALL)
LONG_TEXT = "x" * 10_000


async def _queries(backend: ClusterBackend, payload: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Start an execution in one engine, run it in another; return its status and how often its record was queried."""
    asked: list[str] = []
    original = PostgresJournal.accepted

    async def counted(self: PostgresJournal, execution: str) -> Any:
        asked.append(execution)
        return await original(self, execution)

    registry = recording_registry([])
    async with (
        backend.open(registry=registry, roles=frozenset({"worker"})),
        backend.open(registry=registry, roles=frozenset()) as starter,
    ):
        await (await starter.start(DOCUMENT, payload)).end()  # the worker has the definition from here on
        monkeypatch.setattr(PostgresJournal, "accepted", counted)
        run = await starter.start(DOCUMENT, payload)
        status = (await run.end()).status
        return status, asked.count(run.id)


@backends("redis", "rabbitmq")
def test_short_record_is_not_queried(backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(_queries(backend, {"n": 1}, monkeypatch)) == ("completed", 0)


@backends("redis", "rabbitmq")
def test_long_record_is_queried_once(backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(_queries(backend, {"text": LONG_TEXT}, monkeypatch)) == ("completed", 1)


@backends("redis")
def test_first_token_of_removed_execution_restores_nothing(backend: ClusterBackend) -> None:
    calls: list[str] = []
    document = workflow("start>a", a={**CALL, "queue": UNSERVED_QUEUE})

    async def go() -> tuple[list[bytes], int]:
        registry = recording_registry(calls)
        async with backend.open(registry=registry) as engine:
            run = await engine.start(document)
            await backend.wait_for_queue_length(1)
            await engine.engine.services.executions.cancel(run.id)
            removed = await engine.engine.backend.retention.collect(
                [Rule(keep=0)], engine.engine.backend.clock.now()
            )
            assert removed.executions == 1
            async with backend.open(registry=registry, queues=(UNSERVED_QUEUE,)) as late:
                await backend.wait_for_queue_length(0)
                await until(lambda: late.engine.busy == 0, "the worker is idle")
            keys = await redis_command("KEYS", f"{backend.settings.prefix}:*{run.id}*")
            return keys, len(calls)

    assert asyncio.run(go()) == ([], 0)
