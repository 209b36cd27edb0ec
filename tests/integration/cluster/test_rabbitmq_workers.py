"""Workers that connect to RabbitMQ: mismatching topology, missing broker, waiting messages."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from rune.adapters.rabbitmq.amqp.client import ChannelClosedError
from rune.adapters.rabbitmq.dead_letters import requeue_innocent
from rune.adapters.rabbitmq.topology import TopologyMismatchError
from rune.bootstrap import rabbitmq
from rune.settings import Settings
from tests.support.backends import Backend, backends, open_engines
from tests.support.clusters import Cluster, clusters
from tests.support.rabbitmq_queues import VhostQueues, exhaust_deliveries
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow


@backends("rabbitmq")
def test_engine_with_other_queue_kind_is_rejected(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open():
            with pytest.raises(TopologyMismatchError, match="RUNE_QUEUE_KIND"):
                async with backend.open(queue_kind="quorum"):
                    pass

    asyncio.run(go())


@clusters("rabbitmq-travelling")
def test_worker_with_other_queue_kind_exits_with_advice(cluster: Cluster) -> None:
    worker = cluster.fleet.start("worker", RUNE_QUEUE_KIND="quorum")
    assert worker.process.wait(120) == 2
    assert "is ready" not in worker.output()
    assert "rabbitmqctl delete_queue" in worker.output()
    assert "RUNE_QUEUE_PREFIX" in worker.output()


@backends("rabbitmq")
def test_engine_starts_without_broker(backend: Backend) -> None:
    async def go() -> None:
        away = replace(backend.settings, queue="amqp://127.0.0.1:1/")
        async with open_engines(away) as engine:
            assert engine.engine.backend.queue is not None

    asyncio.run(go())


@backends("rabbitmq")
def test_message_of_unserved_queue_waits_for_worker(backend: Backend) -> None:
    calls: list[str] = []
    document = workflow("start>a", a={**of_type("t.call"), "queue": "rare"})
    vhost = backend.settings.queue.rpartition("/")[2]

    def waiting() -> bool:
        queues = {each["name"]: each for each in broker().api("GET", f"queues/{vhost}")}
        return "workflow.execution.rare" in queues

    async def go() -> str:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await until(waiting)
            assert calls == []
            async with backend.open(registry=recording_registry(calls), queues=("rare",)):
                return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert len(calls) == 1


async def _is_waiting(here: VhostQueues) -> bool:
    try:
        return await here.waiting("workflow.execution.rare") == 1
    except ChannelClosedError:  # not declared yet
        return False


@backends("rabbitmq")
def test_message_over_delivery_limit_is_requeued_and_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "requeue_innocent", partial(requeue_innocent, pause=0.05))
    calls: list[str] = []
    document = workflow("start>a", a={**of_type("t.call"), "queue": "rare"})

    async def go(settings: Settings) -> str:
        async with open_engines(settings, registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            await until(lambda: _is_waiting(VhostQueues(settings.queue, "")))
            await exhaust_deliveries(settings.queue, "workflow.execution.rare")
            async with open_engines(settings, registry=recording_registry(calls), queues=("rare",)):
                return (await run.end()).status

    with broker().vhost() as vhost:
        settings = replace(backend.settings, prefix="worn", queue=broker().url(vhost), queue_kind="quorum")
        assert asyncio.run(go(settings)) == "completed"
    assert len(calls) == 1
