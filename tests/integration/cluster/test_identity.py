"""A process uses only stores that belong together: one journal, one state, one number of partitions."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.schema import migrate
from rune.adapters.redis.client import Client
from rune.adapters.redis.stores import RedisStores
from rune.ports.journal import StoreDamagedError
from rune.settings import Settings
from tests.support.async_test import async_test
from tests.support.backends import open_engines, stores
from tests.support.in_process_cli import InProcessCli
from tests.support.redis_stores import fresh_keys
from tests.support.services.redis_server import redis_server
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow

DOCUMENT = workflow("start>a", a=of_type("t.call"))
COMMANDS = (
    ("serve", "worker"),
    ("serve", "scheduler"),
    ("serve", "api", "--port", "0"),
    ("list",),
    ("show", "x"),
    ("workers",),
    ("start", "orders"),
    ("retry", "x"),
    ("dlq", "list"),
    ("verify", "--all"),
    ("prune", "--keep", "1"),
    ("keys", "list"),
)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Stores that were used by a cluster with 16 partitions, the default."""
    settings = stores(tmp_path_factory.mktemp("used"))

    async def go() -> None:
        async with open_engines(settings, registry=recording_registry([])) as engine:
            await engine.run(DOCUMENT)

    asyncio.run(go())
    return settings


def command_line(settings: Settings, folder: pathlib.Path, **more: str) -> InProcessCli:
    return InProcessCli(
        folder,
        RUNE_JOURNAL=settings.journal,
        RUNE_STATE=settings.state,
        RUNE_QUEUE=settings.queue,
        RUNE_PREFIX=settings.prefix,
        RUNE_START_TIMEOUT="0",
        **more,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_other_number_of_partitions_is_refused(
    command: tuple[str, ...], used: Settings, tmp_path: pathlib.Path
) -> None:
    done = command_line(used, tmp_path, RUNE_PARTITIONS="8")(*command)
    assert done.exit_code in (2, 3), done.output
    assert "RUNE_PARTITIONS" in done.output
    assert "16" in done.output
    assert "Traceback" not in done.output


def test_number_of_partitions_is_that_of_the_store(tmp_path: pathlib.Path) -> None:
    settings = replace(stores(tmp_path / "stores"), partitions=4)

    async def go() -> None:
        calls: list[str] = []
        async with open_engines(settings, registry=recording_registry(calls)) as engine:
            await engine.run(DOCUMENT)
        unset = replace(settings, partitions=None)
        async with open_engines(unset, registry=recording_registry(calls)) as engine:
            await engine.run(DOCUMENT)
        assert calls == ["a@/", "a@/"]

    asyncio.run(go())
    assert command_line(settings, tmp_path)("list").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_other_database_with_the_same_state_is_refused(
    command: tuple[str, ...], used: Settings, tmp_path: pathlib.Path
) -> None:
    other = replace(used, journal=stores(tmp_path / "stores").journal)
    done = command_line(other, tmp_path)(*command)
    assert done.exit_code == 3, done.output
    assert "another database" in done.output
    assert "RUNE_PREFIX" in done.output


@pytest.mark.parametrize("migrated", [False, True])
@pytest.mark.parametrize("command", [("workers",), ("migrate",), ("start", "orders")], ids=" ".join)
def test_commands_refuse_the_state_of_another_database(
    command: tuple[str, ...], migrated: bool, used: Settings, tmp_path: pathlib.Path
) -> None:
    other = replace(used, journal=stores(tmp_path / "stores").journal)
    if migrated:
        asyncio.run(migrate(other.journal))
    done = command_line(other, tmp_path)(*command)
    assert done.exit_code == 3, done.output
    assert "another database" in done.output
    assert "RUNE_PREFIX" in done.output


@pytest.mark.parametrize("which", ["database", "partitions"])
def test_doctor_reports_stores_that_do_not_belong_together(
    which: str, used: Settings, tmp_path: pathlib.Path
) -> None:
    given, more = used, {"RUNE_PARTITIONS": "8"}
    if which == "database":
        given, more = replace(used, journal=stores(tmp_path / "stores").journal), {}
        asyncio.run(migrate(given.journal))
    findings = command_line(given, tmp_path, **more).json("doctor", code=1)["checks"]
    (found,) = (each for each in findings if each["check"] == "stores")
    assert found["verdict"] == "bad"
    assert "RUNE_PARTITIONS" in found["found"]
    assert not [each for each in findings if each["check"] == "workers"]


@async_test
async def test_state_of_another_journal_is_refused_after_a_reconnect() -> None:
    """The server was lost and is used by another cluster when the process reaches it again."""
    keys, admin = fresh_keys(), Client(redis_server().url)
    one = RedisStores(redis_server().url, prefix=keys.prefix, partitions=16, journal="one")
    other = RedisStores(redis_server().url, prefix=keys.prefix, partitions=16, journal="other")
    try:
        await one.connect()
        client: Any = one.client
        await admin.call("DEL", f"{keys.prefix}:journal")
        await other.connect()
        connection = client._connection
        connection.abort()
        await until(lambda: connection.lost, "the connection is lost")
        with pytest.raises(StoreDamagedError, match="other in 16 partitions"):
            await client.run("sweep", keys.of("x"), 0, "x", b"\x90")
    finally:
        for each in (one.client, other.client, admin):
            await each.close()
