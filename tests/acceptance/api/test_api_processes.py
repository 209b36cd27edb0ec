"""Several `rune serve api` processes on one cluster share their state and can be stopped individually."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from rune.client import ApiError, AsyncClient, Client, ClientError
from tests.support.api_server import DEADLINE, HELLO, WAITS
from tests.support.backends import stores
from tests.support.services.fleet import Fleet, Process, fleet

pytestmark = pytest.mark.long

KEY = "0123456789abcdef01234567"

SIGNALS = 20
RACES = 10


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
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


def test_events_from_other_api_are_ordered_and_complete(processes: Fleet) -> None:
    one, two = processes.api().url, processes.api().url
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


def test_watch_resumes_at_other_api_after_kill(processes: Fleet) -> None:
    doomed, stays = processes.api(), processes.api()

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


def test_api_runs_no_nodes_and_stops_cleanly(processes: Fleet) -> None:
    api = processes.api()
    with Client(api.url, timeout=DEADLINE) as client:
        client.deploy(HELLO)
        for worker in processes.of("worker"):
            worker.stop()
        execution = client.start("hello", {"name": "Ada"}).execution_id
        assert client.execution(execution).status == "running"
        processes.start("worker").wait_ready()
        assert client.wait(execution, DEADLINE).status == "completed"
        assert client.output(execution) == "Hello, Ada!"
    assert api.stop() == 0


def test_running_api_is_listed_among_workers(processes: Fleet) -> None:
    here, other = processes.api(), processes.api()

    def seen(process: Process) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = httpx.get(f"{here.url}/api/v1/workers").json()["workers"]
        return next((each for each in found if f"api {each['id']} at" in process.output()), None)

    _until(lambda: seen(other) is not None)
    found = seen(other)
    assert found is not None
    assert (found["roles"], found["slots"], found["ready"]) == (["api"], 0, True)
    listed = subprocess.run(
        [sys.executable, "-m", "rune", "workers"],
        env=processes.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (line,) = [line for line in listed.splitlines() if found["id"] in line]
    assert " api " in line
    assert other.stop() == 0
    _until(lambda: seen(other) is None)
    assert seen(here) is not None


def _until(so: Callable[[], bool]) -> None:
    pause, until = threading.Event(), time.monotonic() + DEADLINE
    while not so():
        assert time.monotonic() < until
        pause.wait(0.1)


def test_conditional_updates_on_two_apis_have_one_winner(processes: Fleet) -> None:
    one, two = processes.api().url, processes.api().url

    async def go() -> None:
        async with (
            AsyncClient(one, timeout=DEADLINE) as here,
            AsyncClient(two, timeout=DEADLINE) as there,
        ):
            seen = (await here.deploy({**HELLO, "id": "raced"})).hash
            revision = (await here.set_alias("raced", "stable", 1)).revision
            for turn in range(RACES):
                deploys = [
                    each.deploy({**HELLO, "id": "raced", "name": f"{turn} {who}"}, match=seen)
                    for who, each in enumerate((here, there))
                ]
                won, lost = _parted(await asyncio.gather(*deploys, return_exceptions=True))
                assert (lost.status, lost.code) == (409, "CHANGED")
                assert (await there.workflow("raced")).hash == won.hash
                seen = won.hash
                moves = [
                    each.set_alias("raced", "stable", won.version, weights={1: share}, match=revision)
                    for share, each in ((10, here), (20, there))
                ]
                moved, late = _parted(await asyncio.gather(*moves, return_exceptions=True))
                assert (late.status, late.code) == (409, "CHANGED")
                assert moved.revision == revision + 1
                revision = moved.revision
            versions = [each.version async for each in here.versions("raced")]
            assert versions == list(range(1, RACES + 2))

    _bounded(go())


def _parted(answers: list[Any]) -> tuple[Any, ApiError]:
    """The result of the accepted call and the error of the rejected one."""
    (lost,) = [each for each in answers if isinstance(each, ApiError)]
    (won,) = [each for each in answers if not isinstance(each, BaseException)]
    return won, lost


def test_api_on_public_address_requires_key(processes: Fleet) -> None:
    refused = processes.start("api", "--port", "0", "--host", "0.0.0.0")
    assert refused.process.wait(DEADLINE) == 2
    assert "RUNE_API_KEY" in refused.output()
    locked = processes.start("api", "--port", "0", "--host", "0.0.0.0", RUNE_API_KEY=KEY)
    locked.wait_ready()
    url = f"http://127.0.0.1:{locked.url.rsplit(':', 1)[1]}"
    with Client(url) as client, pytest.raises(ClientError) as without:
        list(client.workflows())
    assert without.value.code == "UNAUTHORIZED"
    with Client(url, key=KEY) as client:
        list(client.workflows())
    assert locked.stop() == 0
