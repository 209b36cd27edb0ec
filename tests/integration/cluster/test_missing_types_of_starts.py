"""A start of another program whose node type not every worker has: it goes to a worker that has it."""

from __future__ import annotations

import asyncio

import pytest

from rune.nodes.registry import standard_registry
from tests.integration.cluster.external_messages import START, TRIGGER, edge, message, new_id
from tests.support.amqp_client import open_client
from tests.support.backends import Backend, backends
from tests.support.workflows import recording_registry

CALL = {"nodes": [TRIGGER, {"id": "a", "type": "t.call", "parameters": {}}], "edges": [edge("trigger", "a")]}
STARTS = 12


@backends("rabbitmq")
def test_start_reaches_worker_that_has_the_node_type(backend: Backend) -> None:
    calls: list[str] = []
    executions = [new_id() for _ in range(STARTS)]

    async def go() -> list[str]:
        async with (
            backend.open(registry=standard_registry()),
            backend.open(registry=recording_registry(calls)),
            open_client(backend.settings.queue) as client,
        ):
            for execution in executions:
                await client.publish(message(execution, "a", CALL, START), checked=False)
            return [(await client.wait_for_completion(each))["status"] for each in executions]

    assert asyncio.run(go()) == ["completed"] * STARTS
    assert len(calls) == STARTS


@backends("rabbitmq")
def test_start_without_worker_that_has_the_node_type_is_dead_lettered_after_a_while(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.runtime.worker.worker.MISSING_TYPE_TIMEOUT_S", 3.0)
    execution = new_id()

    async def go() -> tuple[str, float]:
        async with (
            backend.open(registry=standard_registry()),
            open_client(backend.settings.queue) as client,
        ):
            began = asyncio.get_running_loop().time()
            await client.publish(message(execution, "a", CALL, START), checked=False)
            code, _ = await client.take_dead_letter(execution)
            return code, asyncio.get_running_loop().time() - began

    code, took = asyncio.run(go())
    assert code == "UNKNOWN_TYPE"
    assert took >= 3.0
