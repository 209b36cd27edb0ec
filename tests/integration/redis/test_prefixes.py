"""Two installations with prefixes of their own on one Redis server, with the users of `rune topology --redis-acl`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rune.adapters.redis.client import Library, MissingFunctionsError, library, load_functions
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.stores import RedisStores, acl_file
from tests.support.async_test import async_test
from tests.support.services.redis_server import RedisServer

PREFIXES = ("blue", "green")
PASSWORDS = {role: f"{role}-secret" for role in ("owner", "worker", "scheduler", "api", "watcher")}
EARLIER = (
    "#!lua name=rune_0123456789ab\nredis.register_function('claim_0123456789ab', function() return 7 end)"
)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server with the users of both prefixes, and functions of neither."""
    made = RedisServer()
    with redis.Redis(unix_socket_path=made.socket) as admin:
        for prefix in PREFIXES:
            _, *users = acl_file(prefix, PASSWORDS).splitlines()
            for line in users:
                _, name, *rules = line.split()
                admin.execute_command("ACL", "SETUSER", name, "reset", *rules)
    yield made
    made.stop()


def url(server: RedisServer, prefix: str, role: str) -> str:
    return f"unix://{prefix}-{role}:{PASSWORDS[role]}@{server.socket}"


def user(server: RedisServer, prefix: str, role: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=server.socket, username=f"{prefix}-{role}", password=PASSWORDS[role])


def libraries(server: RedisServer) -> set[str]:
    with redis.Redis(unix_socket_path=server.socket) as admin:
        return {each[1].decode() for each in admin.function_list()}


async def migrate(server: RedisServer, prefix: str) -> bool:
    """Load the functions as `rune migrate` does."""
    client = open_client(url(server, prefix, "owner"))
    try:
        return await load_functions(client, library(prefix))
    finally:
        await client.close()


async def connect(server: RedisServer, prefix: str, role: str = "worker") -> None:
    """Connect as a process does, and call a function."""
    stores = RedisStores(url(server, prefix, role), prefix=prefix)
    try:
        await stores.connect()
    finally:
        await stores.client.close()


def call(client: redis.Redis, functions: Library, keys: tuple[str, ...]) -> Any:
    """Call the function that ends an execution."""
    name = functions.function("end")
    return client.fcall(name, len(keys), *keys, "run", 0, "x", "", time.time_ns() // 1_000_000 + 10_000)


@async_test
async def test_owner_loads_functions_of_its_prefix_alone(server: RedisServer) -> None:
    assert await migrate(server, "blue")
    assert libraries(server) == {library("blue").name}
    assert library("blue").name.startswith("rune_blue_")
    await connect(server, "blue")
    with pytest.raises(MissingFunctionsError, match="lacks the functions"):
        await connect(server, "green")

    assert await migrate(server, "green")
    assert libraries(server) == {library("blue").name, library("green").name}
    await connect(server, "green", "scheduler")
    assert not await migrate(server, "blue")


def test_users_of_a_prefix_cannot_use_functions_of_another(server: RedisServer) -> None:
    with redis.Redis(unix_socket_path=server.socket) as admin:
        for prefix in PREFIXES:
            admin.function_load(library(prefix).text.decode())
    blue, green = (KeySpace(prefix).of("x") for prefix in PREFIXES)
    for role in ("worker", "scheduler", "api"):
        with user(server, "blue", role) as client:
            assert call(client, library("blue"), blue) == 1
            for functions in PREFIXES:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    call(client, library(functions), green)
            with pytest.raises(redis.exceptions.ResponseError, match=r"PREFIX .* keys below green:"):
                call(client, library("green"), blue)


@pytest.mark.parametrize("role", ["worker", "scheduler", "api", "watcher"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_only_owner_may_load_functions(server: RedisServer, prefix: str, role: str) -> None:
    with user(server, "blue", role) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.function_load(library(prefix).text.decode())
    assert libraries(server) == set()


@async_test
async def test_functions_that_another_owner_replaced_are_refused(server: RedisServer) -> None:
    await migrate(server, "green")
    changed = library("green").text.decode() + "\n-- and more"
    with user(server, "blue", "owner") as client:
        client.function_load(changed, replace=True)

    with pytest.raises(
        MissingFunctionsError, match=r"functions rune_green_.* in Redis were changed: run `rune migrate`"
    ):
        await connect(server, "green")
    await migrate(server, "green")
    await connect(server, "green")


@async_test
async def test_functions_of_earlier_version_go_on_beside_those_of_this_one(server: RedisServer) -> None:
    with user(server, "blue", "owner") as client:
        client.function_load(EARLIER)
    with pytest.raises(MissingFunctionsError, match="functions of another version"):
        await connect(server, "blue")

    await migrate(server, "blue")
    await connect(server, "blue")
    assert libraries(server) == {"rune_0123456789ab", library("blue").name}
    with user(server, "blue", "worker") as client:
        assert client.fcall("claim_0123456789ab", 0) == 7


def test_each_prefix_has_users_of_its_own() -> None:
    blue, green = (
        {line.split()[1] for line in acl_file(prefix, PASSWORDS).splitlines()} - {"default"}
        for prefix in PREFIXES
    )
    assert blue == {f"blue-{role}" for role in PASSWORDS}
    assert blue & green == set()
