"""The client of a Redis Cluster: routing, redirections, and the server run of a promoted replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rune.adapters.redis.client import Client, InvalidAddressError, RedisError, library, load_functions
from rune.adapters.redis.cluster import ClusterClient, is_cluster, key_slot, open_client, seed_urls
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.queue import QueueDepthReader
from rune.adapters.redis.stores import UnsuitableServerError, acl_file, check, inspect
from rune.adapters.redis.streams import ConsumerCleaner
from rune.core.execution.token import Token
from tests.contract.suites.state_driver import chain
from tests.support.async_test import async_test
from tests.support.redis_stores import fresh_keys, redis_cluster, redis_queue
from tests.support.services.redis_cluster import (
    ClusterNode,
    RedisClusterServers,
    free_port,
    own_redis_cluster,
    redis_cluster_servers,
)
from tests.support.services.redis_server import RedisServer
from tests.support.waiting import until


@pytest.fixture(scope="module")
def own_servers() -> Iterator[RedisClusterServers]:
    with own_redis_cluster() as made:
        yield made


@pytest.fixture
def servers(own_servers: RedisClusterServers) -> Iterator[RedisClusterServers]:
    """A cluster whose servers a test may freeze and kill."""
    yield own_servers
    own_servers.heal()


class TestAddresses:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("redis://a:1,b:2", ["redis://a:1", "redis://b:2"]),
            ("redis://u:p@a,b:2/0", ["redis://u:p@a", "redis://u:p@b:2"]),
            ("rediss://a?cluster=true&ssl_cert_reqs=none", ["rediss://a?ssl_cert_reqs=none"]),
        ],
    )
    def test_url_of_cluster_names_its_hosts(self, url: str, expected: list[str]) -> None:
        assert is_cluster(url)
        assert seed_urls(url) == expected

    @pytest.mark.parametrize(
        "url", ["redis://a:1", "rediss://a?ssl_cert_reqs=none", "unix:///a,b", "redis://a?cluster=false"]
    )
    def test_url_of_single_server_is_no_cluster(self, url: str) -> None:
        assert not is_cluster(url)
        assert type(open_client(url)) is Client

    @pytest.mark.parametrize("url", ["redis://a,b:x", "redis://a,b/3", "unix:///a?cluster=true"])
    def test_invalid_url_of_cluster_is_rejected(self, url: str) -> None:
        with pytest.raises(InvalidAddressError):
            open_client(url)


class TestRouting:
    @async_test
    async def test_slots_are_those_of_the_server(self, tmp_path: Path) -> None:
        client = open_client(redis_cluster_servers().url)
        for key in ("a", "rune:{p03}:x:1", "{}a", "a{b}{c}", "{x", "}{y}", "ü{ö}"):
            assert await client.call("CLUSTER", "KEYSLOT", key) == key_slot(key)
        await client.close()

    @async_test
    async def test_commands_reach_the_servers_of_their_keys(self, tmp_path: Path) -> None:
        client, prefix = open_client(redis_cluster_servers().url), fresh_keys().prefix
        names = [f"{prefix}:{number}" for number in range(100)]
        await asyncio.gather(*(client.call("SET", each, each) for each in names))
        assert await asyncio.gather(*(client.call("GET", each) for each in names)) == [
            each.encode() for each in names
        ]
        found = [await each.call("KEYS", f"{prefix}:*") for each in await client.servers()]
        assert len(found) == 3
        assert all(found)
        assert sum(map(len, found)) == 100
        await client.close()

    @async_test
    async def test_functions_are_loaded_into_each_master(self, tmp_path: Path) -> None:
        client = open_client(redis_cluster_servers().url)
        await load_functions(client, library("rune"))
        for each in await client.servers():
            (found,) = await each.call("FUNCTION", "LIST", "LIBRARYNAME", library("rune").name)
            assert library("rune").name.encode() in found
        await client.close()

    @async_test
    async def test_queues_and_consumers_of_all_servers_are_found(self, tmp_path: Path) -> None:
        keys, url = fresh_keys(), redis_cluster_servers().url
        client = open_client(url, run_number_key=keys.run_number)
        async with redis_queue(keys, "one", url=url) as queue:
            names = [f"x{number}" for number in range(100)]
            for each in names:
                await queue.send(each, [Token(1)])
            found = [await queue.receive() for _ in names]
            (depth,) = await QueueDepthReader(client, keys).read()
            assert (depth.queue, depth.waiting, depth.held) == ("default", 0, 100)
            for delivery in found:
                await queue.ack(delivery)
            # It has read one stream of each partition.
            assert await ConsumerCleaner(client, keys).forget(0.0) == keys.partitions
        await client.close()

    @async_test
    async def test_cluster_passes_the_check_of_its_servers(self, tmp_path: Path) -> None:
        client = open_client(redis_cluster_servers().url)
        await check(client, fresh_keys())
        assert (await inspect(client))["state_trouble"] == ""
        await client.close()

    @async_test
    async def test_plain_address_of_cluster_is_rejected_with_advice(self, tmp_path: Path) -> None:
        client = Client(f"redis://{redis_cluster_servers().first}")
        with pytest.raises(UnsuitableServerError, match="cluster=true"):
            await check(client, fresh_keys())
        with pytest.raises(RedisError, match="cluster=true"):
            await asyncio.gather(*(client.call("GET", str(number)) for number in range(20)))
        await client.close()

    @async_test
    async def test_address_of_cluster_for_single_server_is_rejected_with_advice(self, tmp_path: Path) -> None:
        port = free_port()
        server = RedisServer("--port", str(port))
        client = open_client(f"redis://127.0.0.1:{port}?cluster=true")
        with pytest.raises(RedisError, match="does not belong to a Redis Cluster"):
            await client.call("PING")
        await client.close()
        server.stop()

    def test_users_of_cluster_may_ask_for_its_slots(self) -> None:
        passwords = {"worker": "a", "owner": "b", "watcher": "c"}
        _, *users = acl_file("rune", passwords, clustered=True).splitlines()
        assert all("+cluster|slots" in each and "+asking" in each for each in users)
        assert "cluster" not in acl_file("rune", passwords)


class TestMovedSlots:
    @async_test
    async def test_key_is_reached_while_its_slot_moves_and_afterwards(
        self, servers: RedisClusterServers
    ) -> None:
        client = open_client(servers.url)
        here, there = "{moving}:here", "{moving}:there"
        await client.call("SET", here, "1")
        move = await asyncio.to_thread(servers.begin_move, here)
        # It does not exist at the source: it is created at the target.
        answers = await asyncio.gather(*[client.call("SET", there, "2")], return_exceptions=True)
        assert answers == [b"OK"]
        assert move.target.ask("CLUSTER", "COUNTKEYSINSLOT", key_slot(here)) == 1
        assert [await client.call("GET", each) for each in (here, there)] == [b"1", b"2"]
        await asyncio.to_thread(move.finish)
        assert [await client.call("GET", each) for each in (here, there)] == [b"1", b"2"]
        assert await client.call("INCR", here) == 2
        assert move.target.ask("GET", here) == b"2"
        await client.close()

    @async_test
    async def test_command_with_parted_keys_waits_until_slot_has_moved(
        self, servers: RedisClusterServers
    ) -> None:
        client = open_client(servers.url)
        one, other = "{moving}:one", "{moving}:other"
        await client.call("SET", one, "1")
        move = await asyncio.to_thread(servers.begin_move, one)
        await client.call("SET", other, "2")
        waiting = asyncio.create_task(client.call("EXISTS", one, other))
        await client.call("GET", other)
        assert not waiting.done()
        await asyncio.to_thread(move.finish)
        assert await waiting == 2
        await client.close()

    @async_test
    async def test_state_survives_the_move_of_its_partition(
        self, servers: RedisClusterServers, tmp_path: Path
    ) -> None:
        async with redis_cluster(tmp_path, servers.url, chain()) as cluster:
            state = cluster.process()
            await cluster.accept()
            (token,) = (await state.begin("x")).emitted
            move = await asyncio.to_thread(servers.begin_move, KeySpace(cluster.prefix).of("x")[0])
            await asyncio.to_thread(move.finish)
            claim = await state.claim("x", token, "w", leased=True)
            assert claim.verdict == "run"
            assert (await cluster.complete(state, token)).emitted != ()
            assert (await state.claim("x", token, "w", leased=True)).verdict == "done"


class TestFailover:
    @async_test
    async def test_promoted_replica_without_last_writes_is_rebuilt_from_the_journal(
        self, servers: RedisClusterServers, tmp_path: Path
    ) -> None:
        async with redis_cluster(tmp_path, servers.url, chain()) as cluster:
            state, other = cluster.process(), cluster.process()
            await cluster.accept()
            (first,) = (await state.begin("x")).emitted
            key = KeySpace(cluster.prefix).of("x")[0]
            master = await asyncio.to_thread(servers.master_of, key)
            replica = await asyncio.to_thread(servers.replica_of, master)
            await asyncio.to_thread(cut_off, master, replica)
            await state.claim("x", first, "w", leased=True)
            (second,) = (await cluster.complete(state, first)).emitted
            master.kill()
            replica.thaw()
            assert await asyncio.to_thread(servers.await_new_master, key, master) is replica
            assert (await other.claim("x", first, "v", leased=True)).verdict == "done"
            claim = await other.claim("x", second, "v", leased=True)
            assert (claim.verdict, claim.recovered) == ("run", True)
            assert other.rebuilds == 1

    @async_test
    async def test_executions_of_promoted_replica_become_due(
        self, servers: RedisClusterServers, tmp_path: Path
    ) -> None:
        async with redis_cluster(tmp_path, servers.url, chain()) as cluster:
            state, keys = cluster.process(streams=True), KeySpace(cluster.prefix)
            names = [f"x{number}" for number in range(60)]
            for each in names:
                await cluster.accept(each)
            await state.due_timers(100)
            master = await asyncio.to_thread(servers.master_of, keys.due(0))
            replica = await asyncio.to_thread(servers.replica_of, master)
            await asyncio.to_thread(cut_off, master, replica)
            for each in names:
                await state.begin(each)
            master.kill()
            replica.thaw()
            await asyncio.to_thread(servers.await_new_master, keys.due(0), master)
            client = open_client(servers.url)

            async def all_sent() -> bool:
                await state.due_timers(100)
                streams = [keys.stream(part, "default", "normal") for part in range(keys.partitions)]
                found = await client.gather(*(client.call("XRANGE", each, "-", "+") for each in streams))
                return {fields[1].decode() for entries in found for _, fields in entries} == set(names)

            await until(all_sent, "each execution has its token in a stream again")
            await client.close()

    @async_test
    async def test_server_that_is_promoted_again_counts_as_another_run(
        self, servers: RedisClusterServers
    ) -> None:
        client = ClusterClient(servers.url, run_number_key="rune:incarnation")
        key = "rune:{p00}:due"
        first, number = await client.server_run(key)
        master = await asyncio.to_thread(servers.master_of, key)
        process = master.info("server", "run_id")
        master.freeze()
        promoted = await asyncio.to_thread(servers.await_new_master, key, master)
        master.thaw()
        await asyncio.to_thread(servers.await_replica, master)
        await asyncio.to_thread(servers.promote, master)
        assert await asyncio.to_thread(servers.await_new_master, key, promoted) is master
        assert master.info("server", "run_id") == process
        second, higher = await client.server_run(key)
        assert second != first
        assert higher > number
        await client.close()


def cut_off(master: ClusterNode, replica: ClusterNode) -> None:
    """Freeze a replica and close its connection, from which it would otherwise read the next writes once it goes on."""
    master.ask("WAIT", 1, 10_000)
    replica.freeze()
    master.ask("CLIENT", "KILL", "TYPE", "replica")
