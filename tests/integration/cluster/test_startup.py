"""Servers wait at their start for stores that are unreachable, being migrated or without functions."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import redis

from rune.adapters.postgres.database import migrations
from rune.adapters.postgres.schema import migrate
from rune.adapters.redis.client import library
from rune.testing.harness import compiled
from tests.acceptance.conformance.stubs import MailSink
from tests.support.backends import stores
from tests.support.cli_process import until
from tests.support.clusters import Cluster
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli
from tests.support.services.databases import ready
from tests.support.services.fleet import Fleet
from tests.support.services.postgres import database_of, free_port, server
from tests.support.services.proxy import Proxy
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer

pytestmark = pytest.mark.long

OTHER_LIBRARY = "#!lua name=rune_000000000000\nredis.register_function('other', function() return 1 end)"


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    made = RedisServer()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def processes(private_redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """No process yet; a migrated database and an empty Redis of their own."""
    settings = msgspec.structs.replace(stores(tmp_path), state=private_redis.url, queue=private_redis.url)
    made = Fleet(tmp_path, settings)
    try:
        yield made
    finally:
        made.stop()


def cli(processes: Fleet, folder: Path) -> InProcessCli:
    names = ("RUNE_JOURNAL", "RUNE_STATE", "RUNE_QUEUE", "RUNE_PREFIX")
    return InProcessCli(folder, **{name: processes.environment[name] for name in names})


@pytest.mark.parametrize("role", ["worker", "scheduler", "api"])
def test_server_waits_for_redis(role: str, processes: Fleet, private_redis: RedisServer) -> None:
    private_redis.kill()
    arguments = ("--port", "0") if role == "api" else ()
    process = processes.start(role, *arguments)  # type: ignore[arg-type]

    process.wait_for_output("waiting for Redis")
    private_redis.restart()

    process.wait_ready()
    assert "Redis is available after" in process.output()
    assert process.stop() == 0


@contextmanager
def forwarded(port: int, url: str) -> Iterator[None]:
    """Make the server of a URL reachable at another port while the block runs."""
    loop = asyncio.new_event_loop()
    started, stopped = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with Proxy(urlsplit(url).port or 0).running(port):
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


def at_port(url: str, port: int) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{port}", 1)


@pytest.mark.parametrize("role", ["worker", "scheduler", "api"])
def test_server_waits_for_postgresql(role: str, processes: Fleet) -> None:
    port, journal = free_port(), processes.settings.journal
    arguments = ("--port", "0") if role == "api" else ()
    process = processes.start(role, *arguments, RUNE_JOURNAL=at_port(journal, port))  # type: ignore[arg-type]
    process.wait_for_output("waiting for PostgreSQL")

    with forwarded(port, journal):
        process.wait_ready()
        assert "PostgreSQL is available after" in process.output()
        process.kill()


def test_worker_runs_nodes_as_soon_as_its_broker_is_reachable(processes: Fleet, tmp_path: Path) -> None:
    port = free_port()
    with broker().vhost() as vhost:
        queue = broker().url(vhost)
        processes.environment["RUNE_QUEUE"] = queue
        worker = processes.start("worker", RUNE_QUEUE=at_port(queue, port))
        worker.wait_for_output("the broker is not ready yet")
        file = tmp_path / "one.json"
        file.write_text(json.dumps(document([node("start", "manual"), edit("one", 1)], "start>one")))

        with forwarded(port, queue):
            assert cli(processes, tmp_path).json("run", str(file), "--no-worker")["status"] == "completed"
            worker.kill()


def test_heartbeat_settings_decide_when_a_process_is_listed(processes: Fleet, tmp_path: Path) -> None:
    """By default a process beats every 5 s and is listed for 15 s after its last heartbeat."""
    worker = processes.start("worker", RUNE_HEARTBEAT="0.1", RUNE_HEARTBEAT_TIMEOUT="1")
    worker.wait_ready()
    rune = cli(processes, tmp_path)
    seen: set[str] = set()

    def beats() -> int | None:
        seen.update(each["seen_at"] for each in rune.json("workers")["workers"])
        return len(seen) if len(seen) >= 4 else None

    began = time.monotonic()
    until(beats, "the process has sent four heartbeats")
    assert time.monotonic() - began < 15
    worker.kill()
    killed = time.monotonic()
    until(lambda: rune.json("workers")["workers"] == [] or None, "the killed process is no longer listed")
    assert time.monotonic() - killed < 10


def test_worker_waits_for_migration_of_another_process(private_redis: RedisServer, tmp_path: Path) -> None:
    ready()
    dsn = server().create(f"{database_of(tmp_path)}m")
    asyncio.run(migrate(dsn, migrations()[:-1]))
    settings = msgspec.structs.replace(
        stores(tmp_path), journal=dsn, state=private_redis.url, queue=private_redis.url
    )
    processes = Fleet(tmp_path, settings)
    try:
        worker = processes.start("worker")
        worker.wait_for_output("waiting for PostgreSQL")
        assert "migrate it first" in worker.output()

        asyncio.run(migrate(dsn))

        worker.wait_ready()
        assert worker.stop() == 0
    finally:
        processes.stop()


def test_worker_waits_for_functions_beside_those_of_another_version(
    processes: Fleet, private_redis: RedisServer, tmp_path: Path
) -> None:
    with redis.Redis(unix_socket_path=private_redis.socket) as admin:
        admin.function_load(OTHER_LIBRARY)
        worker = processes.start("worker")
        worker.wait_for_output(
            "Redis has the functions of another version of Rune: run `rune migrate` as the owner of the stores"
        )
        assert len(admin.function_list()) == 1

        migrated = cli(processes, tmp_path).json("migrate")

        assert migrated["steps"] == [f"functions of Redis ({library(processes.settings.prefix).name})"]
        worker.wait_ready()
        assert len(admin.function_list()) == 2
    assert cli(processes, tmp_path).json("migrate")["steps"] == []


def test_migrate_restores_changed_functions(
    processes: Fleet, private_redis: RedisServer, tmp_path: Path
) -> None:
    changed = OTHER_LIBRARY.replace("rune_000000000000", library(processes.settings.prefix).name)
    with redis.Redis(unix_socket_path=private_redis.socket) as admin:
        admin.function_load(changed)
        cli(processes, tmp_path).json("migrate")

        ((_, name, *_, functions),) = admin.function_list()
        assert name.decode() == library(processes.settings.prefix).name
        assert len(functions) > 1


def test_first_process_loads_functions_into_empty_redis(
    processes: Fleet, private_redis: RedisServer, tmp_path: Path
) -> None:
    assert cli(processes, tmp_path).json("workers") == {"workers": []}
    with redis.Redis(unix_socket_path=private_redis.socket) as admin:
        assert len(admin.function_list(library=library(processes.settings.prefix).name)) == 1


def test_server_that_waits_for_its_stores_can_be_stopped(
    processes: Fleet, private_redis: RedisServer
) -> None:
    private_redis.kill()
    worker = processes.start("worker")
    worker.wait_for_output("waiting for Redis")

    assert worker.stop() == 0


def test_server_gives_up_after_start_timeout(processes: Fleet, private_redis: RedisServer) -> None:
    private_redis.kill()
    worker = processes.start("worker", RUNE_START_TIMEOUT="3")

    assert worker.process.wait(60) == 3
    assert "waiting for Redis" in worker.output()
    assert "Redis cannot be reached" in worker.output().splitlines()[-1]


def test_start_without_redis_is_accepted_and_leaves_nothing_open(
    processes: Fleet, private_redis: RedisServer
) -> None:
    cluster = Cluster(processes, MailSink())

    async def go() -> str:
        await asyncio.to_thread(private_redis.kill)
        async with cluster.connect():
            pass
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with cluster.connect() as (engine, reader):
            plan = compiled(
                document([node("start", "input"), node("a", "wait", {"resume": "signal"})], "start>a"),
                engine.registry,
            )
            run = await engine.launcher.start(engine.launcher.new_record(plan, b"{}"), plan)
            summary = await reader.execution(run.id)
            assert summary is not None
            return summary.status

    try:
        assert asyncio.run(go()) == "running"
    finally:
        private_redis.restart()
