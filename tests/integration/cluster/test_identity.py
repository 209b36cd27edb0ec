"""A process uses only stores that belong together: one journal, one state, one number of partitions."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.schema import migrate
from rune.adapters.postgres.stores import cluster_identity
from rune.adapters.redis.client import Client
from rune.adapters.redis.stores import RedisStores
from rune.ports.journal import StoreDamagedError
from rune.settings import Settings
from tests.support.async_test import async_test
from tests.support.backends import open_engines, stores
from tests.support.in_process_cli import InProcessCli
from tests.support.redis_stores import fresh_keys
from tests.support.services.postgres import database_of, server
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


async def scan(redis: Client, pattern: str) -> AsyncIterator[bytes]:
    """Yield the keys that match a pattern."""
    cursor: bytes | int = 0
    while cursor != b"0":
        cursor, keys = await redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        for each in keys:
            yield each


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


def copy_of(settings: Settings, folder: pathlib.Path) -> Settings:
    """Return settings of a restored copy of the database, with the same Redis."""
    name = database_of(folder)
    return replace(settings, journal=server().create(name, settings.journal.rpartition("/")[2]))


COPY_COMMANDS = (*COMMANDS[:3], ("workers",), ("start", "orders"), ("pause", "x"), ("migrate",))


@pytest.fixture(scope="module")
def copied(used: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return copy_of(used, tmp_path_factory.mktemp("copied"))


@pytest.mark.parametrize("command", COPY_COMMANDS, ids=" ".join)
def test_copy_of_the_database_with_the_same_state_is_refused(
    command: tuple[str, ...], copied: Settings, tmp_path: pathlib.Path
) -> None:
    done = command_line(copied, tmp_path)(*command)
    assert done.exit_code == 3, done.output
    assert "another copy of this database" in done.output
    assert "RUNE_PREFIX" in done.output


def test_doctor_reports_a_copy_of_the_database(
    copied: Settings, used: Settings, tmp_path: pathlib.Path
) -> None:
    findings = command_line(copied, tmp_path).json("doctor", code=1)["checks"]
    (found,) = (each for each in findings if each["check"] == "stores")
    assert (found["verdict"], "another copy" in found["found"]) == ("bad", True)
    assert "stores" not in [
        each["check"]
        for each in command_line(used, tmp_path).json("doctor")["checks"]
        if each["verdict"] == "bad"
    ]


def test_copy_of_the_database_runs_with_another_prefix(copied: Settings, tmp_path: pathlib.Path) -> None:
    own = replace(copied, prefix=stores(tmp_path / "stores").prefix)

    async def go() -> None:
        calls: list[str] = []
        async with open_engines(own, registry=recording_registry(calls)) as engine:
            await engine.run(DOCUMENT)
        assert calls == ["a@/"]

    asyncio.run(go())


def test_replacement_of_the_database_runs_after_redis_was_emptied(
    used: Settings, tmp_path: pathlib.Path
) -> None:
    own = replace(used, prefix=stores(tmp_path / "stores").prefix)
    moved = copy_of(own, tmp_path / "moved")

    async def run(settings: Settings) -> None:
        async with open_engines(settings, registry=recording_registry([])) as engine:
            await engine.run(DOCUMENT)

    async def go() -> None:
        await run(own)
        with pytest.raises(StoreDamagedError, match="another copy"):
            await run(moved)
        redis = Client(own.state)
        keys = [each async for each in scan(redis, f"{own.prefix}:*")]
        await redis.call("DEL", *keys)
        await redis.close()
        await run(moved)

    asyncio.run(go())


def test_state_of_a_version_that_kept_no_database_is_used(used: Settings, tmp_path: pathlib.Path) -> None:
    own = replace(used, prefix=stores(tmp_path / "stores").prefix)

    async def run() -> None:
        async with open_engines(own, registry=recording_registry([])) as engine:
            await engine.run(DOCUMENT)

    async def go() -> None:
        await run()
        redis = Client(own.state)
        assert await redis.call("DEL", f"{own.prefix}:database") == 1
        await run()
        assert await redis.call("EXISTS", f"{own.prefix}:database") == 1
        await redis.close()

    asyncio.run(go())


def test_user_without_the_right_to_ask_for_the_server_goes_on(used: Settings, tmp_path: pathlib.Path) -> None:
    name = database_of(tmp_path)
    server().create(name, used.journal.rpartition("/")[2])
    server().sql(
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;"
        f" CREATE ROLE {name} LOGIN IN ROLE pg_read_all_data",
        name,
    )

    async def go() -> None:
        database = Database(f"postgresql://{name}@127.0.0.1:{server().port}/{name}", read_only=True)
        await database.open()
        try:
            found = await cluster_identity(database)
        finally:
            await database.close()
        assert (bool(found.journal), found.database) == (True, "")

    asyncio.run(go())


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
