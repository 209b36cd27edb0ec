"""A command beside the owner of the file waits for an end by one request, which the end answers."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rune.adapters.sqlite.owner import OwnerServer
from rune.bootstrap import running_engine
from rune.cli import follow
from rune.cli.backend import CommandServices
from rune.cli.follow import ExecutionFollower, SentCommand
from rune.cli.live import ExecutionPoller
from rune.cli.progress import ProgressCounter
from rune.codec.rpc import Request
from rune.ports.journal import ExecutionRecord
from rune.runtime.engine import Engine
from rune.settings import Settings
from tests.support import cluster_cli

GATED = json.dumps(cluster_cli.with_id(cluster_cli.GATED, "gated")).encode()
START, WAIT = "executions.start_definition", "executions.wait_for_end"
TIMEOUT_S = 60.0


class OwnerRequests:
    """The methods that other processes have called on the owner, and how often they have read the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.methods: list[str] = []
        self.reads = 0
        self.waits, self.has_read = asyncio.Event(), asyncio.Event()
        reply, poll = OwnerServer._reply, ExecutionPoller.poll

        async def counted_reply(server: OwnerServer, request: Request) -> Any:
            self.methods.append(request.verb)
            if request.verb == WAIT:
                self.waits.set()
            return await reply(server, request)

        async def counted_poll(poller: ExecutionPoller, reader: Any) -> bool:
            self.reads += 1
            self.has_read.set()
            return await poll(poller, reader)

        monkeypatch.setattr(OwnerServer, "_reply", counted_reply)
        monkeypatch.setattr(ExecutionPoller, "poll", counted_poll)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> OwnerRequests:
    return OwnerRequests(monkeypatch)


async def start(services: CommandServices) -> ExecutionRecord:
    return await services.executions.start_definition(GATED, b'{"n": 7}', execution="x")


@asynccontextmanager
async def followed_beside_owner(
    folder: pathlib.Path, requests: OwnerRequests, counter: ProgressCounter | None
) -> AsyncIterator[tuple[Engine, asyncio.Future[int]]]:
    """Run an owner, and follow an execution that waits for a signal as another process does."""
    settings = Settings(home=str(folder))
    async with asyncio.timeout(TIMEOUT_S), running_engine(settings) as engine:
        follower = ExecutionFollower(settings, SentCommand(start), counter, as_json=counter is None)
        code = asyncio.ensure_future(follower.follow_to_end())
        await requests.waits.wait()
        yield engine, code


def test_run_beside_owner_sends_one_request_for_the_end(
    tmp_path: pathlib.Path, requests: OwnerRequests, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        async with followed_beside_owner(tmp_path, requests, None) as (engine, code):
            await engine.services.executions.signal("x", "go", b'"went"')
            return await code

    assert asyncio.run(work()) == 0
    assert json.loads(capsys.readouterr().out)["output"] == [7, "went"]
    assert requests.methods == [START, WAIT]
    assert requests.reads == 0, "no facts are read if no progress is displayed"


def test_end_interrupts_the_pause_between_two_displays_of_progress(
    tmp_path: pathlib.Path, requests: OwnerRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PROGRESS_INTERVAL_S", 3600.0)

    async def work() -> int:
        async with followed_beside_owner(tmp_path, requests, ProgressCounter("x")) as (engine, code):
            await requests.has_read.wait()
            await engine.services.executions.signal("x", "go", b'"went"')
            return await code

    assert asyncio.run(work()) == 0
    assert requests.methods.count(WAIT) == 1


def test_end_that_is_recorded_already_is_returned_at_once(
    tmp_path: pathlib.Path, requests: OwnerRequests, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=str(tmp_path))

    async def work() -> int:
        async with asyncio.timeout(TIMEOUT_S), running_engine(settings) as engine:
            await start(engine.services)
            await engine.services.executions.cancel("x")
            return await ExecutionFollower(settings, SentCommand(start), None, as_json=True).follow_to_end()

    assert asyncio.run(work()) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "cancelled"
    assert requests.methods == [START, WAIT]
