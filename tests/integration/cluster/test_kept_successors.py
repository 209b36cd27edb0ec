"""The only successor of a token stays in its worker: it is claimed with the commit and passes through no queue."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from rune.bootstrap import open_reader
from rune.core.execution.token import Token
from rune.runtime.worker import executor, worker
from rune.runtime.worker.node_runner import NodeRunner
from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.waiting import until
from tests.support.workflows import chain, gated_registry, of_type, recording_registry, workflow

CALL = of_type("t.call")
NAMES = ["n0@/", "n1@/", "n2@/"]
MAX_LATENESS_S = 3.0
"""By how much a retry may be late on a busy machine."""


def _deliveries(engine: Harness) -> int:
    return sum(engine.engine.instrumentation.counters.deliveries.values())


async def _run_chain(backend: Backend, **options: Any) -> tuple[list[str], int, dict[str, Any], list[int]]:
    """Run a chain of three nodes with effects in one engine; return their calls, the number of deliveries, the run
    document, and how often each node was claimed."""
    calls: list[str] = []
    async with backend.open(registry=recording_registry(calls), **options) as engine:
        run = await engine.start(chain(3, CALL))
        await run.end()
        document = await run.document()
        claims = await _claims(backend, run.id)
        return calls, _deliveries(engine), document, claims


async def _claims(backend: Backend, execution: str) -> list[int]:
    async with open_reader(backend.settings) as reader:
        return sorted((await reader.claims(execution)).values())


@backends("embedded", "redis")
def test_chain_passes_through_the_queue_once(backend: Backend) -> None:
    calls, deliveries, document, claims = asyncio.run(_run_chain(backend))
    assert calls == NAMES
    assert deliveries == 1
    assert document["status"] == "completed"
    assert [each["node_id"] for each in document["nodes"]] == ["start", "n0", "n1", "n2"]
    assert claims == [1, 1, 1]


@backends("embedded", "redis", "rabbitmq")
def test_chain_is_sent_node_by_node_if_sticky_is_off(backend: Backend) -> None:
    calls, deliveries, document, claims = asyncio.run(_run_chain(backend, sticky="off"))
    assert (calls, deliveries, document["status"], claims) == (NAMES, 3, "completed", [1, 1, 1])


@backends("rabbitmq")
def test_default_on_rabbitmq_is_a_message_per_node(backend: Backend) -> None:
    assert asyncio.run(_run_chain(backend))[1] == 3


@backends("rabbitmq")
def test_chain_on_rabbitmq_is_kept_if_sticky_is_on(backend: Backend) -> None:
    calls, deliveries, document, claims = asyncio.run(_run_chain(backend, sticky="on"))
    assert (calls, deliveries, document["status"], claims) == (NAMES, 1, "completed", [1, 1, 1])


@backends("redis-travelling")
def test_chain_is_sent_node_by_node_without_in_place(backend: Backend) -> None:
    assert asyncio.run(_run_chain(backend))[1] == 3


@backends("redis")
def test_successor_of_another_queue_is_sent(backend: Backend) -> None:
    calls: list[str] = []
    document = workflow("start>a a>b b>c", a=CALL, b={**CALL, "queue": "gpu"}, c=CALL)

    async def go() -> int:
        async with backend.open(registry=recording_registry(calls), queues=("default", "gpu")) as engine:
            await (await engine.start(document)).end()
            return _deliveries(engine)

    assert asyncio.run(go()) == 3
    assert calls == ["a@/", "b@/", "c@/"]


@backends("embedded", "redis")
def test_successor_is_sent_while_all_slots_are_busy(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that has had its turn leaves its slot to what waits in the queue."""
    monkeypatch.setattr(worker, "MAX_TURN_S", 0.0)
    monkeypatch.setattr(worker, "TURN_PER_SLOT_S", 0.0)
    assert asyncio.run(_run_chain(backend, slots=1))[1] == 3


@backends("embedded", "redis")
def test_stopping_worker_leaves_the_successor_to_others(backend: Backend) -> None:
    """A node that runs when the worker stops is its last one."""
    calls: list[str] = []

    async def go() -> list[str]:
        opened = asyncio.Event()
        registry = gated_registry(calls, lambda: opened)
        document = chain(2, of_type("t.gate"))
        async with backend.open(registry=registry) as stopping:
            run = await stopping.start(document)
            await until(lambda: len(calls) == 1, "the first node runs")
            stopping.engine._worker._stopping = True
            opened.set()
            await until(lambda: stopping.engine.busy == 0, "the worker is idle")
            found = list(calls)
        async with backend.open(registry=registry) as other:
            await (await other.engine.wait_for(run.id))
        return found

    assert len(asyncio.run(go())) == 1
    assert len(calls) == 2


@backends("redis")
def test_engine_error_of_kept_token_is_retried_with_its_delays(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = (0.3, 0.6)
    tries: list[float] = []
    original = NodeRunner.run

    async def broken(self: Any, data: Any, reader: Any, token: Token, *more: Any) -> Any:
        if data.plan.ids[token.node] == "n1":
            tries.append(time.monotonic())
            raise LookupError("the engine itself")
        return await original(self, data, reader, token, *more)

    monkeypatch.setattr(worker, "REDELIVERY_DELAYS_S", delays)
    monkeypatch.setattr(NodeRunner, "run", broken)

    async def go() -> tuple[Any, int]:
        async with backend.open(registry=recording_registry([])) as engine:
            end = await (await engine.start(chain(3, CALL))).end()
            dead = engine.engine.backend.dead_messages
            assert dead is not None

            async def listed() -> bool:
                return len(await dead.list(10)) == 1

            await until(listed, "the dead letter is listed, which is written after the end", 60.0)
            return end, len(await dead.list(10))

    end, letters = asyncio.run(go())
    assert (end.status, end.error.code, letters) == ("failed", "DEAD_LETTERED", 1)
    gaps = [after - before for before, after in pairwise(tries)]
    assert len(gaps) == len(delays)
    for gap, delay in zip(gaps, delays, strict=True):
        assert delay <= gap <= delay + MAX_LATENESS_S


@backends("redis")
def test_kept_token_whose_worker_does_nothing_is_sent_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash right behind the commit that claimed the successor: its lease expires and the token is sent."""
    calls: list[str] = []
    lost: list[str] = []
    original = executor.Executor._run_claimed

    async def lose_once(self: Any, data: Any, claim: Any, *others: Any) -> Any:
        if data.plan.ids[claim.token.node] == "n1" and not lost:
            lost.append("n1")
            await asyncio.Event().wait()
        return await original(self, data, claim, *others)

    monkeypatch.setattr(executor.Executor, "_run_claimed", lose_once)

    async def go() -> tuple[str, int]:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(chain(3, CALL))
            return (await run.end(60)).status, _deliveries(engine)

    assert asyncio.run(go()) == ("completed", 2)
    assert calls == NAMES
    assert lost == ["n1"]
