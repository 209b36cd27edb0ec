"""`rune up` as a separate process that is killed, stopped and restarted."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

import rune
from rune.client import AsyncClient, Client, ClientError, ConnectionFailedError
from tests.support.api_server import DEADLINE, HELLO, WAITS
from tests.support.cli_process import TIMEOUT_S
from tests.support.up_process import UpProcess
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

KEY = "0123456789abcdef01234567"

WORKERS = 8
ROUNDS = 5 if WHOLE else 3
EACH = 1_000 if WHOLE else 150  # starts that are acknowledged before each kill
UNDER_WAY = 300.0  # s


async def starting(url: str, acknowledged: dict[str, str], prefix: str, enough: asyncio.Event) -> None:
    """Start executions until the server is gone; record those that it acknowledged."""
    async with AsyncClient(url, timeout=DEADLINE) as client:
        number = 0
        while True:
            key = f"{prefix}-{number}"
            number += 1
            try:
                started = await asyncio.wait_for(client.start("hello", {"name": key}, key=key), DEADLINE)
            except ClientError:
                return
            acknowledged[key] = started.execution_id
            if len(acknowledged) >= EACH:
                enough.set()


async def watching(url: str, execution: str, seen: list[int]) -> None:
    """Follow an execution across kills of the server until its end."""
    async with AsyncClient(url, timeout=DEADLINE) as client:
        while True:
            try:
                async for event in client.watch(execution, after=seen[-1] if seen else 0):
                    seen.append(event.number)
                return
            except ConnectionFailedError:
                continue


def test_kills_lose_no_acknowledged_starts_or_events(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)

    async def go() -> None:
        url = await asyncio.to_thread(up.start, "--no-examples")
        async with AsyncClient(url, timeout=DEADLINE) as client:
            await client.deploy(HELLO)
            await client.deploy(WAITS)
            watched = (await client.start("waits")).execution_id
        acknowledged: dict[str, str] = {}
        seen: list[int] = []
        watcher = asyncio.create_task(watching(url, watched, seen))
        for turn in range(ROUNDS):
            enough = asyncio.Event()
            before = dict(acknowledged)
            fresh: dict[str, str] = {}
            load = [
                asyncio.create_task(starting(url, fresh, f"t{turn}w{each}", enough))
                for each in range(WORKERS)
            ]
            async with AsyncClient(url, timeout=DEADLINE) as client:
                for number in range(5):
                    await client.signal(watched, "other", number)
            await asyncio.wait_for(enough.wait(), UNDER_WAY)
            up.process.kill()
            await asyncio.to_thread(up.process.communicate)
            await asyncio.gather(*load)
            acknowledged = {**before, **fresh}
            url = await asyncio.to_thread(up.start, "--no-examples")
        async with AsyncClient(url, timeout=DEADLINE) as client:
            for key, execution in acknowledged.items():
                ended = await client.wait(execution, DEADLINE)
                assert (ended.status, ended.key) == ("completed", key)
            listed = [each async for each in client.executions(workflow="hello", page=1_000)]
            assert len(listed) >= len(acknowledged) >= ROUNDS * EACH
            await client.signal(watched, "go", "done")
            await asyncio.wait_for(watcher, DEADLINE)
            assert seen == list(range(1, len(seen) + 1))
            assert len(seen) >= 5 * ROUNDS + 4

    try:
        asyncio.run(go())
    finally:
        up.stop(signal.SIGKILL)


def test_sigterm_stops_server_with_open_stream(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    url = up.start("--no-examples")
    try:
        with rune.Client(url, patience=0.5) as client:
            client.deploy(WAITS)
            execution = client.start("waits").execution_id
            events = client.watch(execution)
            assert next(events).number == 1
            assert up.stop() == 0
            with pytest.raises(ConnectionFailedError):
                list(events)
    finally:
        up.stop(signal.SIGKILL)


def test_examples_are_deployed_on_first_start_only(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        url = up.start()
        with Client(url) as client:
            names = {each.workflow_id for each in client.workflows()}
            assert "hello" in names
            assert up.said["examples"] == len(names)
            started = client.start("hello", {"name": "World"})
            assert client.wait(started.execution_id, DEADLINE).status == "completed"
            assert client.output(started.execution_id) == "Good morning, World!"
            client.delete("hello")
        assert up.stop() == 0
        with Client(up.start()) as client:
            assert "hello" not in {each.workflow_id for each in client.workflows()}
            assert client.execution(started.execution_id).status == "completed"
        assert up.stop() == 0
    finally:
        up.stop(signal.SIGKILL)


@pytest.mark.parametrize("failing", ["taken port", "other address without a key"])
def test_start_that_fails_leaves_the_examples_to_the_next(failing: str, tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "home")
    (tmp_path / "home").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up.port = taken.getsockname()[1] if failing == "taken port" else 0
        up.start(*(("--host", "0.0.0.0") if up.port == 0 else ()))
        assert up.process.wait(TIMEOUT_S) == 2
        assert up.stop() == 2
    try:
        up.port = 0
        up.start()
        assert up.said["examples"] > 0
        assert up.stop() == 0
    finally:
        up.stop(signal.SIGKILL)


def test_example_is_started_on_first_start_only(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, RUNE_RUN_EXAMPLE="true")
    try:
        with Client(up.start()) as client:
            (started,) = client.executions()
            assert started.execution_id == up.said["example"]
            assert (started.workflow_id, started.status) == ("approval", "running")
            waiting = next(each for each in client.watch(started.execution_id) if each.kind == "node.waiting")
            assert waiting.node_id == "ask"
        assert up.stop() == 0
        with Client(up.start()) as client:
            assert [each.execution_id for each in client.executions()] == [started.execution_id]
        assert up.said["example"] is None
    finally:
        up.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "setting"), [((), "false"), (("--no-examples",), "true")], ids=["setting", "no-examples"]
)
def test_example_is_not_started_if_switched_off(
    tmp_path: Path, options: tuple[str, ...], setting: str
) -> None:
    up = UpProcess(tmp_path, RUNE_RUN_EXAMPLE=setting)
    try:
        with Client(up.start(*options)) as client:
            assert list(client.executions()) == []
        assert up.said["example"] is None
    finally:
        up.stop(signal.SIGKILL)


def test_up_on_public_address_requires_key(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    refused = up.start("--host", "0.0.0.0")
    assert "NOT_SERVED" in refused
    up.process.communicate(timeout=TIMEOUT_S)
    assert up.process.returncode == 2
    locked = UpProcess(tmp_path, RUNE_API_KEY=KEY)
    try:
        locked.start("--host", "0.0.0.0", "--no-examples")
        url = f"http://127.0.0.1:{locked.port}"
        with Client(url) as client, pytest.raises(ClientError) as refusal:
            list(client.workflows())
        assert refusal.value.code == "UNAUTHORIZED"
        with Client(url, key=KEY) as client:
            assert list(client.workflows()) == []
    finally:
        locked.stop()


def test_second_server_on_same_home_reports_owner(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        up.start("--no-examples")
        second = UpProcess(tmp_path)
        assert f"in use by another process ({up.process.pid})" in second.start()
        second.process.communicate(timeout=TIMEOUT_S)
        assert second.process.returncode == 3
    finally:
        up.stop()
