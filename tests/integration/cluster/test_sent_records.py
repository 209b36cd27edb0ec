"""The first deliveries of an execution carry its record, so that a worker does not have to look it up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.rabbitmq.amqp.frames import MessageProperties
from rune.adapters.rabbitmq.queue import RECORD_HEADER
from rune.codec.messages import encode_hint, encode_record
from rune.core.execution.token import Token
from rune.nodes.registry import standard_registry
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


@backends("rabbitmq")
@pytest.mark.parametrize("kind", ["known definition", "unknown definition", "missing node type"])
def test_message_with_the_record_of_an_unknown_execution_is_a_dead_letter(
    backend: ClusterBackend, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.runtime.worker.worker.MISSING_TYPE_TIMEOUT_S", 0.0)

    async def go() -> list[tuple[str | None, str]]:
        types = recording_registry([])
        async with backend.open(registry=types) as engine:
            run = await engine.start(DOCUMENT)
            await run.end()
        lacking = kind == "missing node type"
        async with backend.open(registry=standard_registry() if lacking else types) as engine:
            hash = "0" * 64 if kind == "unknown definition" else run.accepted.hash
            record = encode_record(replace(run.accepted, id="gone", hash=hash))
            headers = {RECORD_HEADER: bytearray(record)}
            properties = MessageProperties(headers=headers, type="NodeExecutionMessage", app_id="rune")
            queue: Any = engine.engine.backend.queue
            body = encode_hint("gone", Token(1))
            await queue.publisher.publish([("workflow.execution", "workflow.execution", body, properties)])
            messages = engine.engine.services.dead_messages

            async def listed() -> bool:
                return bool(await messages.list())

            await until(listed, "the message is dead")
            return [(each.execution, each.code) for each in await messages.list()]

    assert asyncio.run(go()) == [("gone", "UNKNOWN_EXECUTION")]
