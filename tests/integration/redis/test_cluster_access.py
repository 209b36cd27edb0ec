"""A Redis Cluster that accepts only TLS connections and users with the rights of their role."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace

from rune.adapters.redis.client import MissingFunctionsError, RedisError, library, load_functions
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.stores import acl_file
from rune.ports.journal import StoreUnavailableError
from tests.support.async_test import async_test
from tests.support.backends import open_engines, stores
from tests.support.services.redis_cluster import RedisClusterServers, ServerTls, own_redis_cluster
from tests.support.waiting import until
from tests.support.workflows import edit, of_type, recording_registry, split, workflow

PASSWORDS = {"worker": "work-secret", "owner": "own-secret"}
DOCUMENT = workflow(
    "start>a a>s s>i i>g g>out",
    a=of_type("t.call"),
    s=split("$trigger.items"),
    i=edit(v="{{ $item * 2 }}"),
    g=of_type("aggregator"),
    out=of_type("output", value="{{ [x.v for x in $g] }}"),
)


@pytest.fixture(scope="module")
def tls() -> Iterator[ServerTls]:
    folder = Path(tempfile.mkdtemp(prefix="rune-cluster-tls-"))
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    made = ServerTls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    authority.cert_pem.write_to_path(str(made.authority))
    issued.cert_chain_pems[0].write_to_path(str(made.certificate))
    issued.private_key_pem.write_to_path(str(made.key))
    yield made
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def own_servers(tls: ServerTls) -> Iterator[RedisClusterServers]:
    with own_redis_cluster(tls=tls) as made:
        yield made


@pytest.fixture
def servers(own_servers: RedisClusterServers) -> Iterator[RedisClusterServers]:
    yield own_servers
    own_servers.heal()


def _add_users(servers: RedisClusterServers, prefix: str, *, clustered: bool = True) -> None:
    """Create the users of the roles on each server. The servers themselves and the tests use the default user."""
    _, *users = acl_file(prefix, PASSWORDS, clustered=clustered).splitlines()
    for node in servers.nodes:
        for line in users:
            _, name, *rules = line.split()
            node.ask("ACL", "SETUSER", name, "reset", *rules)


def _url(servers: RedisClusterServers, role: str, prefix: str = "rune") -> str:
    return servers.url_of(f"{prefix}-{role}:{PASSWORDS[role]}@")


@async_test
async def test_each_server_is_used_with_tls_and_the_login(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune")
    client = open_client(_url(servers, "worker"))
    names = [f"rune:{{p{number:02d}}}:due" for number in range(16)]
    found = await asyncio.gather(*(client.call("EXISTS", each) for each in names), return_exceptions=True)
    assert found == [0] * 16
    for node in servers.masters():
        assert "user=rune-worker" in str(node.ask("CLIENT", "LIST"))
    await client.close()


@async_test
async def test_commands_of_another_prefix_are_denied_on_each_server(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune")
    client = open_client(_url(servers, "worker"))
    for number in range(16):
        with pytest.raises(RedisError, match="NOPERM"):
            await client.call("EXISTS", f"other:{{p{number:02d}}}:due")
    await client.close()


def test_executions_complete_with_the_users_of_roles(servers: RedisClusterServers, tmp_path: Path) -> None:
    settings = stores(tmp_path)
    prefix, url = settings.prefix, _url(servers, "worker", settings.prefix)
    settings = replace(settings, state=url, queue=url)
    _add_users(servers, prefix)

    async def go() -> list[Any]:
        owner = open_client(_url(servers, "owner", prefix))
        await load_functions(owner, library(prefix))
        await owner.close()
        async with open_engines(settings, count=2, registry=recording_registry([])) as engine:
            runs = [await engine.start(DOCUMENT, {"items": [number] * 3}) for number in range(20)]
            for each in runs:
                await each.end(90)
            return [(await each.document())["output"] for each in runs]

    for node in servers.nodes:
        node.ask("ACL", "LOG", "RESET")
    assert asyncio.run(go()) == [[2 * number] * 3 for number in range(20)]
    assert [entry for node in servers.nodes for entry in node.connect().acl_log()] == []


@async_test
async def test_worker_may_not_load_functions(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune")
    client = open_client(_url(servers, "worker"))
    with pytest.raises(MissingFunctionsError, match="user of the owner"):
        await load_functions(client, library("rune"))
    await client.close()


@async_test
async def test_user_without_the_commands_of_a_cluster_is_rejected(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune", clustered=False)
    client = open_client(_url(servers, "worker"))
    with pytest.raises(RedisError, match=r"cluster\|slots"):
        await client.call("EXISTS", "rune:{p00}:due")
    await client.close()


@async_test
async def test_servers_of_unknown_authority_are_rejected(servers: RedisClusterServers) -> None:
    client = open_client(servers.url.partition("?")[0])
    with pytest.raises(StoreUnavailableError, match="certificate"):
        await client.call("PING")
    await client.close()


@async_test
async def test_wrong_password_is_rejected(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune")
    client = open_client(servers.url_of("rune-worker:wrong@"))
    with pytest.raises(StoreUnavailableError, match="WRONGPASS"):
        await client.call("EXISTS", "rune:{p00}:due")
    await client.close()


@async_test
async def test_promoted_replica_is_reached_with_tls_and_the_login(servers: RedisClusterServers) -> None:
    _add_users(servers, "rune")
    client, key = open_client(_url(servers, "worker")), "rune:{p00}:due"
    assert await client.call("EXISTS", key) == 0
    master = await asyncio.to_thread(servers.master_of, key)
    master.kill()
    await asyncio.to_thread(servers.await_new_master, key, master)

    async def reached() -> bool:
        try:
            return bool(await client.call("EXISTS", key) == 0)
        except StoreUnavailableError:
            return False

    await until(reached, "the promoted replica is reached", 60.0)
    await client.close()
