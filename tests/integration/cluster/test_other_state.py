"""A command whose settings name another Redis, or another prefix, than that of the cluster strands no work: it is
refused, or the cluster does what it has recorded."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.state_lock import OtherStateError
from rune.adapters.redis.client import Client
from rune.bootstrap import wait_for_stores
from rune.core.execution.fact import NodeSuspended
from rune.ports.journal import StoreUnavailableError
from rune.settings import Settings
from rune.testing.harness import Run
from tests.support.backends import open_engines, stores
from tests.support.in_process_cli import InProcessCli
from tests.support.redis_stores import fresh_keys
from tests.support.services.redis_server import RedisServer, redis_server
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow

DOCUMENT = workflow("start>a", a=of_type("t.call"))
WAITING = workflow("start>w w>a", w=of_type("wait", resume="signal", name="go"), a=of_type("t.call"))
WRITING = (("start", "t"), ("signal", "x", "go"), ("cancel", "x"), ("retry", "x"), ("dlq", "list"))
SERVING = (("serve", "worker"), ("serve", "scheduler"), ("serve", "api", "--port", "0"))
READING = (("list",), ("show", "x"), ("workers",), ("verify", "--all"), ("migrate",))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Stores that were used by a cluster."""
    settings = stores(tmp_path_factory.mktemp("used"))

    async def go() -> None:
        async with open_engines(settings, registry=recording_registry([])) as engine:
            await engine.run(DOCUMENT)

    asyncio.run(go())
    return settings


@pytest.fixture
def empty(tmp_path: pathlib.Path) -> Iterator[Settings]:
    """Settings of a command with the database of a new cluster, and another, empty Redis."""
    server = RedisServer()
    yield replace(stores(tmp_path / "stores"), state=server.url, queue=server.url)
    server.stop()


def of_cluster(settings: Settings) -> Settings:
    """Return the settings of the processes of the cluster."""
    return replace(settings, state=redis_server().url, queue=redis_server().url)


async def suspended(run: Run) -> bool:
    return any(type(each.fact) is NodeSuspended for each in await run.facts())


def command_line(settings: Settings, folder: pathlib.Path, **more: str) -> InProcessCli:
    values = {
        "RUNE_JOURNAL": settings.journal,
        "RUNE_STATE": settings.state,
        "RUNE_QUEUE": settings.queue,
        "RUNE_PREFIX": settings.prefix,
        "RUNE_START_TIMEOUT": "0",
    }
    return InProcessCli(folder, **(values | more))


@pytest.mark.parametrize("command", [*WRITING, *SERVING, *READING], ids=" ".join)
def test_other_prefix_is_refused(command: tuple[str, ...], used: Settings, tmp_path: pathlib.Path) -> None:
    done = command_line(used, tmp_path, RUNE_PREFIX="other")(*command)
    assert done.exit_code == 3, done.output
    assert "RUNE_PREFIX is `other`" in done.output
    assert f"`{used.prefix}`" in done.output


def test_doctor_names_another_prefix(used: Settings, tmp_path: pathlib.Path) -> None:
    findings = command_line(used, tmp_path, RUNE_PREFIX="other").json("doctor", code=1)["checks"]
    (found,) = (each for each in findings if each["check"] == "stores")
    assert (found["verdict"], "RUNE_PREFIX is `other`" in found["found"]) == ("bad", True)


def test_prefix_is_changed_by_migrate(tmp_path: pathlib.Path) -> None:
    settings = stores(tmp_path / "stores")

    async def run(settings: Settings) -> None:
        async with open_engines(settings, registry=recording_registry([])) as engine:
            await engine.run(DOCUMENT)

    asyncio.run(run(settings))
    moved = replace(settings, prefix=fresh_keys().prefix)
    done = command_line(moved, tmp_path)("migrate", "--prefix")
    assert (done.exit_code, f"prefix {moved.prefix}" in done.output) == (0, True), done.output
    asyncio.run(run(moved))
    assert command_line(settings, tmp_path)("list").exit_code == 3


def test_start_with_an_empty_redis_is_run_by_the_cluster(empty: Settings) -> None:
    calls: list[str] = []

    async def go() -> None:
        async with (
            open_engines(of_cluster(empty), registry=recording_registry(calls)) as cluster,
            open_engines(empty, registry=recording_registry([]), roles=frozenset()) as command,
        ):
            run = await command.start(DOCUMENT)
            await (await cluster.engine.wait_for(run.id))

    asyncio.run(go())
    assert calls == ["a@/"]


def test_signal_with_an_empty_redis_is_not_acknowledged(empty: Settings) -> None:
    calls: list[str] = []

    async def go() -> None:
        async with (
            open_engines(of_cluster(empty), registry=recording_registry(calls)) as cluster,
            open_engines(empty, registry=recording_registry([]), roles=frozenset()) as command,
        ):
            run = await cluster.start(WAITING)
            await until(lambda: suspended(run), "the node waits")
            with pytest.raises(StoreUnavailableError, match="RUNE_STATE"):
                await command.engine.services.executions.signal(run.id, "go", key="k1")
            await cluster.engine.services.executions.signal(run.id, "go", key="k1")
            await run.end()

    asyncio.run(go())
    assert calls == ["a@/"]


def test_redis_that_lost_its_data_is_used_by_commands_again(tmp_path: pathlib.Path) -> None:
    """FLUSHALL closes no connection."""
    server = RedisServer()
    settings, calls = stores(tmp_path / "stores", server.url), list[str]()

    async def go() -> None:
        async with open_engines(settings, registry=recording_registry(calls)) as cluster:
            await cluster.run(DOCUMENT)
            redis = Client(server.url)
            await redis.call("FLUSHALL")

            async def recorded() -> bool:
                return bool(await redis.call("EXISTS", f"{settings.prefix}:journal"))

            await until(recorded, "Redis records its cluster again")
            await redis.close()

    asyncio.run(go())
    server.stop()
    assert calls == ["a@/"]


@pytest.mark.parametrize("role", ["worker", "scheduler", "api"])
def test_process_with_an_empty_redis_is_refused_beside_the_cluster(role: str, empty: Settings) -> None:
    async def go() -> None:
        async with open_engines(of_cluster(empty)):
            with pytest.raises(OtherStateError):
                async with open_engines(empty, roles=frozenset({role}), start_timeout=0):
                    pass
        async with open_engines(empty, roles=frozenset({role}), start_timeout=0):
            pass  # the first Redis is lost, and nobody uses it

    asyncio.run(go())


def test_server_waits_while_its_redis_is_empty_and_that_of_others_is_not(empty: Settings) -> None:
    async def go() -> None:
        async with open_engines(of_cluster(empty)):
            with pytest.raises(OtherStateError):
                await wait_for_stores(replace(empty, start_timeout=0))
        await wait_for_stores(replace(empty, start_timeout=0))

    asyncio.run(go())
