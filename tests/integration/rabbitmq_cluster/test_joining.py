"""Who comes to a broker: a worker that was set otherwise, and one that work has been waiting for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from rune.adapters.rabbitmq.amqp.client import ChannelClosedError
from rune.adapters.rabbitmq.dead_letters import requeue_innocent
from rune.adapters.rabbitmq.topology import TopologyMismatchError
from rune.bootstrap import rabbitmq
from rune.settings import Settings
from tests.hazards.building import counting, kind, workflow
from tests.hazards.clustered import engines, fresh
from tests.integration.cluster.standing import Standing
from tests.integration.rabbitmq.queues import Place, worn_out
from tests.support.services.rabbitmq import broker
from tests.support.waiting import until


@pytest.fixture(scope="module")
def carried() -> Iterator[Settings]:
    """Stores that nobody has used, and a broker between the engines."""
    with broker().vhost() as vhost:
        yield replace(fresh(), queue=broker().url(vhost))


def test_who_was_set_otherwise_is_not_let_in(carried: Settings) -> None:
    async def go() -> None:
        async with engines(carried):
            with pytest.raises(TopologyMismatchError, match="RUNE_QUEUE_KIND"):
                async with engines(carried, queue_kind="quorum"):
                    pass

    asyncio.run(go())


def test_a_worker_that_was_set_otherwise_says_so_and_ends(travelling: Standing) -> None:
    worker = travelling.fleet.start("worker", RUNE_QUEUE_KIND="quorum")
    assert worker.process.wait(120) == 2
    assert "is ready" not in worker.said()
    assert "rabbitmqctl delete_queue" in worker.said()
    assert "RUNE_QUEUE_PREFIX" in worker.said()


def test_a_broker_that_is_away_is_waited_for(carried: Settings) -> None:
    async def go() -> None:
        away = replace(carried, queue="amqp://127.0.0.1:1/")
        async with engines(away) as cluster:
            assert cluster.engine.backend.queue is not None

    asyncio.run(go())


def test_what_nobody_serves_yet_waits_for_who_does(carried: Settings) -> None:
    calls: list[str] = []
    document = workflow("start>a", a={**kind("t.call"), "queue": "rare"})
    vhost = carried.queue.rpartition("/")[2]

    def waiting() -> bool:
        queues = {each["name"]: each for each in broker().api("GET", f"queues/{vhost}")}
        return "workflow.execution.rare" in queues

    async def go() -> str:
        async with engines(carried, registry=counting(calls)) as cluster:
            run = await cluster.start(document)
            await until(waiting)
            assert calls == []
            async with engines(carried, registry=counting(calls), queues=("rare",)):
                return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert len(calls) == 1


async def _waits(here: Place) -> bool:
    try:
        return await here.waiting("workflow.execution.rare") == 1
    except ChannelClosedError:  # nobody has declared it yet
        return False


def test_what_was_only_delivered_too_often_is_run_after_all(
    carried: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "requeue_innocent", partial(requeue_innocent, pause=0.05))
    calls: list[str] = []
    document = workflow("start>a", a={**kind("t.call"), "queue": "rare"})

    async def go(settings: Settings) -> str:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document)
            await until(lambda: _waits(Place(settings.queue, "")))
            await worn_out(settings.queue, "workflow.execution.rare")
            async with engines(settings, registry=counting(calls), queues=("rare",)):
                return (await run.end()).status

    with broker().vhost() as vhost:
        settings = replace(carried, prefix="worn", queue=broker().url(vhost), queue_kind="quorum")
        assert asyncio.run(go(settings)) == "completed"
    assert len(calls) == 1
