"""APIs as processes of their own on one cluster: what one was told all know, and who goes is missed by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from rune.client import AsyncClient, Client, ClientError
from tests.cluster.standing import stores
from tests.master.running import DEADLINE, HELLO, WAITS
from tests.services.fleet import Fleet, fleet

SIGNALS = 20


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("apis")
    settings = msgspec.structs.replace(stores(folder), nodes=())
    with fleet(folder, settings, workers=1) as made:
        yield made


async def _numbers(url: str, execution: str) -> list[int]:
    async with AsyncClient(url, timeout=DEADLINE) as client:
        return [event.number async for event in client.watch(execution)]


def _bounded(work: Coroutine[Any, Any, None]) -> None:
    async def go() -> None:
        async with asyncio.timeout(2 * DEADLINE):
            await work

    asyncio.run(go())


def test_events_of_what_one_api_started_come_in_order_and_without_gaps_from_the_other(crew: Fleet) -> None:
    one, two = crew.api().url, crew.api().url
    assert one != two

    async def go() -> None:
        async with AsyncClient(one, timeout=DEADLINE) as here, AsyncClient(two, timeout=DEADLINE) as there:
            await here.deploy(WAITS)
            started = [(await here.start("waits")).execution_id for _ in range(3)]
            watching = [asyncio.create_task(_numbers(two, each)) for each in started]
            for number in range(SIGNALS):
                for each in started:
                    await here.signal(each, "other", number)
            for each in started:
                await there.signal(each, "go", "done")
            for each, numbers in zip(started, await asyncio.gather(*watching), strict=True):
                assert numbers == list(range(1, len(numbers) + 1))
                assert len(numbers) >= SIGNALS + 4
                assert (await here.wait(each, DEADLINE)).status == "completed"
                assert await there.output(each) == "done"

    _bounded(go())


def test_who_watched_an_api_that_is_killed_goes_on_at_the_other(crew: Fleet) -> None:
    doomed, stays = crew.api(), crew.api()

    async def go() -> None:
        seen: list[int] = []
        async with AsyncClient(stays.url, timeout=DEADLINE) as there:
            await there.deploy(WAITS)
            execution = (await there.start("waits")).execution_id
            async with AsyncClient(doomed.url, timeout=DEADLINE, patience=0.1) as here:
                async for event in here.watch(execution):
                    seen.append(event.number)
                    if len(seen) == 2:
                        break
                await there.signal(execution, "other", 1)
                doomed.kill()
                with pytest.raises(ClientError):
                    await anext(here.watch(execution, after=seen[-1]))
            await there.signal(execution, "go")
            seen += [event.number async for event in there.watch(execution, after=seen[-1])]
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= 5

    _bounded(go())


def test_an_api_runs_no_nodes_and_leaves_politely(crew: Fleet) -> None:
    api = crew.api()
    with Client(api.url, timeout=DEADLINE) as client:
        client.deploy(HELLO)
        for worker in crew.of("worker"):
            worker.stop()
        execution = client.start("hello", {"name": "Ada"}).execution_id
        assert client.execution(execution).status == "running"
        crew.start("worker").wait_ready()
        assert client.wait(execution, DEADLINE).status == "completed"
        assert client.output(execution) == "Hello, Ada!"
    assert api.stop() == 0


def test_an_api_asks_for_the_key_that_lets_it_listen_elsewhere(crew: Fleet) -> None:
    refused = crew.start("api", "--port", "0", "--host", "0.0.0.0")
    assert refused.process.wait(DEADLINE) == 2
    assert "RUNE_API_KEY" in refused.said()
    locked = crew.start("api", "--port", "0", "--host", "0.0.0.0", RUNE_API_KEY="s3cret")
    locked.wait_ready()
    url = f"http://127.0.0.1:{locked.url.rsplit(':', 1)[1]}"
    with Client(url) as client, pytest.raises(ClientError) as without:
        list(client.workflows())
    assert without.value.code == "UNAUTHORIZED"
    with Client(url, key="s3cret") as client:
        list(client.workflows())
    assert locked.stop() == 0
