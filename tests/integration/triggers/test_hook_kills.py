"""Every failure is handled once, although processes are killed while they fail and are handled."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.bootstrap import open_reader
from rune.client import Client, ClientError
from rune.core.execution.stored_value import Inline
from rune.ports.queries import ExecutionFilter
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from tests.support.api_server import DEADLINE
from tests.support.clusters import open_cluster
from tests.support.documents import document, node
from tests.support.up_process import UpProcess
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

FAILURES = 1_000 if WHOLE else 40
CLUSTER_FAILURES = 200 if WHOLE else 30
KILLS = 10_000 if WHOLE else 2
CLUSTER_KILLS = 20 if WHOLE else 2
"""At most so many processes are killed: each of a cluster is away for as long as it takes to start another one."""

PERIOD_S = 1.0 if WHOLE else 0.2
PAUSE = threading.Event()
PATIENCE_S = 900.0
HANDLER = document([node("in", "input")], id="tell-ops")
FAILING = document(
    [node("in", "input"), node("stop", "fail", {"message": "no stock"})],
    "in>stop",
    id="orders",
    settings={"on_failure": "tell-ops"},
)


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Run a function in a thread while the block runs, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)


async def handled(reader: ExecutionReader) -> int:
    """Return how many handlers have completed."""
    wanted = ExecutionFilter(workflow="tell-ops", statuses=("completed",))
    return len(await reader.executions(wanted, limit=2 * FAILURES))


async def told(reader: ExecutionReader) -> Counter[str]:
    """Return how often each execution was handled."""
    found: Counter[str] = Counter()
    for each in await reader.executions(ExecutionFilter(workflow="tell-ops"), limit=2 * FAILURES):
        accepted = await reader.accepted(each.id)
        assert isinstance(accepted.input, Inline)
        found[msgspec.json.decode(accepted.input.data)["execution"]["id"]] += 1
    return found


def test_each_failure_is_handled_once_while_the_process_is_killed(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    failed: set[str] = set()

    def fail_all() -> None:
        with Client(url, timeout=DEADLINE) as client:
            for number in range(FAILURES):
                while True:
                    try:
                        failed.add(client.start("orders", {"n": number}, key=f"order-{number}").execution_id)
                        break
                    except ClientError:
                        PAUSE.wait(0.05)  # it is being started again

    try:
        url = up.start("--no-examples")
        with Client(url, timeout=DEADLINE) as client:
            client.deploy(HANDLER)
            client.deploy(FAILING)

        async def kill_until_handled() -> int:
            kills = 0
            async with asyncio.timeout(PATIENCE_S), open_reader(Settings(home=str(tmp_path))) as reader:
                while await handled(reader) < FAILURES:
                    await asyncio.to_thread(PAUSE.wait, PERIOD_S)
                    if kills < KILLS:
                        kills += 1
                        up.stop(signal.SIGKILL)
                        up.start("--no-examples")
            return kills

        with in_background(fail_all):
            kills = asyncio.run(kill_until_handled())
        assert kills >= 1
        assert len(failed) == FAILURES
        up.stop()

        async def counted() -> Counter[str]:
            async with open_reader(Settings(home=str(tmp_path))) as reader:
                return await told(reader)

        assert asyncio.run(counted()) == dict.fromkeys(failed, 1)
    finally:
        up.stop(signal.SIGKILL)


def test_each_failure_is_handled_once_while_workers_and_schedulers_are_killed(tmp_path: Path) -> None:
    roles: Any = cycle(("worker", "scheduler", "worker"))
    with open_cluster(tmp_path, "redis", in_place=True, workers=2, schedulers=2) as cluster:

        async def work() -> Counter[str]:
            async with asyncio.timeout(PATIENCE_S), cluster.connect() as (engine, reader):
                service = engine.services
                for each in (HANDLER, FAILING):
                    await service.workflows.deploy(msgspec.json.encode(each))

                async def fail_all() -> None:
                    for number in range(CLUSTER_FAILURES):
                        started = await service.executions.start(
                            "orders", None, msgspec.json.encode({"n": number})
                        )
                        failed.add(started.id)

                starting, kills = asyncio.create_task(fail_all()), 0
                while await handled(reader) < CLUSTER_FAILURES:
                    await asyncio.to_thread(PAUSE.wait, PERIOD_S)
                    if kills < CLUSTER_KILLS:
                        kills += 1
                        role = next(roles)
                        cluster.fleet.of(role)[0].kill()
                        # What takes its place is ready before the next one is killed.
                        await asyncio.to_thread(cluster.fleet.start(role).wait_ready)
                await starting
                return await told(reader)

        failed: set[str] = set()
        found = asyncio.run(work())
        assert len(failed) == CLUSTER_FAILURES
        assert found == dict.fromkeys(failed, 1)
