"""Redis adapters and the server: checks, outages, restarts and flushes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from rune.adapters.redis import rebuild
from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import KeySpace
from rune.adapters.redis.stores import RedisStores, UnsuitableServerError, check, note_persistence
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.fold import fold
from rune.core.execution.outcome import FanOut, Suspend
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.ports.clock import SystemClock
from rune.ports.journal import ExecutionRecord, StoredFact, StoreUnavailableError
from tests.contract.suites.state_driver import chain, fan
from tests.support.async_test import async_test
from tests.support.redis_stores import RedisCluster, fresh_keys, redis_cluster, redis_queue
from tests.support.services.redis_server import RedisServer, redis_server

S = TypeVar("S")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server used by one test only, which may kill or flush it."""
    server = RedisServer()
    yield server
    server.stop()


async def until_renewed(client: Client, lease: str, times: int = 3) -> None:
    """Wait until a lease was renewed so often."""
    renewals, left = 0, 0
    while renewals < times:
        before, left = left, await client.call("PTTL", lease)
        renewals += left > before > 0


def on_own_server(
    body: Callable[[S, RedisCluster, RedisServer], Coroutine[Any, Any, None]],
) -> Callable[[S, RedisServer, Path], None]:
    """Run the test method with a cluster over a server of its own."""

    @async_test
    async def test(self: S, server: RedisServer, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, server.url, chain()) as cluster:
            await body(self, cluster, server)

    test.__name__ = test.__qualname__ = body.__name__
    return test


class TestClient:
    @async_test
    async def test_pipelined_calls_get_their_own_answers(self, tmp_path: Path) -> None:
        client = Client(redis_server().url)
        answers = await asyncio.gather(*(client.call("ECHO", str(number)) for number in range(1_000)))
        assert answers == [str(number).encode() for number in range(1_000)]
        await client.close()

    @async_test
    async def test_error_fails_only_its_call(self, tmp_path: Path) -> None:
        client = Client(redis_server().url)
        calls = (client.call("PING"), client.call("NONSENSE"), client.call("PING"))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in answers] == [bytes, RedisError, bytes]
        await client.close()

    @async_test
    async def test_restarted_server_has_new_run(self, server: RedisServer) -> None:
        client = Client(server.url, run_number_key="rune:incarnation")
        first, number = await client.server_run()
        server.kill()
        with pytest.raises(StoreUnavailableError):
            await asyncio.gather(*(client.call("PING") for _ in range(3)))
        server.restart()
        assert await client.call("PING") == b"PONG"
        second, higher = await client.server_run()
        assert second != first
        assert higher > number
        await client.close()

    @async_test
    async def test_unresponsive_server_is_unavailable(self, tmp_path: Path) -> None:
        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        path = str(tmp_path / "redis.sock")
        async with await asyncio.start_unix_server(never_answer, path):
            client = Client(f"unix://{path}", deadline=0.05)
            with pytest.raises(StoreUnavailableError):
                await client.call("PING")
            await client.close()


class TestCheck:
    @async_test
    async def test_check_rejects_changed_partition_count(self, tmp_path: Path) -> None:
        keys = fresh_keys()
        client = Client(redis_server().url)
        await check(client, keys)
        await check(client, KeySpace(keys.prefix))
        with pytest.raises(UnsuitableServerError, match="16 partitions"):
            await check(client, KeySpace(keys.prefix, 8))
        await client.close()

    @async_test
    async def test_check_rejects_eviction_and_replicas(
        self, server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = Client(server.url)
        with caplog.at_level(logging.WARNING):
            await check(client, KeySpace())
        assert "append-only" not in caplog.text  # a note for servers
        with caplog.at_level(logging.WARNING):
            await note_persistence(client)
        assert "append-only" in caplog.text
        await client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(UnsuitableServerError, match="noeviction"):
            await check(client, KeySpace())
        await client.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await client.call("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(UnsuitableServerError, match="replica"):
            await check(client, KeySpace())
        await client.close()

    @async_test
    async def test_check_names_forbidden_command(self, server: RedisServer) -> None:
        admin = Client(server.url)
        await admin.call("ACL", "SETUSER", "default", "-xautoclaim")
        with pytest.raises(UnsuitableServerError, match="XAUTOCLAIM"):
            await check(admin, KeySpace())
        await admin.close()


class TestProcesses:
    @async_test
    async def test_processes_share_state(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            one, other = cluster.process(), cluster.process()
            (a,) = (await one.admit(await cluster.accept(), cluster.plan)).emitted
            assert (await other.begin("x")).emitted == ()
            assert (
                await other.admit(
                    ExecutionRecord(id="x", workflow="w", hash="h", at=1, input=Inline(b"")), cluster.plan
                )
            ).emitted == ()
            (b,) = (await cluster.complete(other, a)).emitted
            mine = await one.claim("x", b, "one", leased=True)
            assert (mine.verdict, (await other.claim("x", b, "other", leased=True)).verdict) == (
                "run",
                "held",
            )
            assert mine.fence is not None
            assert await other.renew("x", b.node, b.path, mine.fence)

    @async_test
    async def test_late_token_deletes_state_of_ended_execution_that_server_restored(
        self, tmp_path: Path
    ) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            state, client = cluster.process(), Client(redis_server().url)
            await cluster.accept()
            (token,) = (await state.begin("x")).emitted
            key = KeySpace(cluster.prefix).of("x")[0]
            packed = msgspec.msgpack.decode(await client.call("HGET", key, "!"))
            await client.call("HSET", key, "!", msgspec.msgpack.encode({**packed, "i": "earlier"}))
            await cluster.journal.record("x", [ExecutionEnded(2, "completed")])

            assert (await state.claim("x", token, "me", leased=True)).verdict == "void"
            assert await client.call("EXISTS", key) == 0
            await client.close()

    @async_test
    async def test_late_activation_of_ended_execution_installs_nothing(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            starter, relay = cluster.process(streams=True), cluster.process()
            accepted = await cluster.accept()
            tokens = (await relay.begin("x")).emitted
            while tokens:
                tokens = (await cluster.complete(relay, tokens[0])).emitted
            end = ExecutionEnded(2, "completed")
            await cluster.journal.record("x", [end])
            await relay.end("x", end)
            assert (await starter.admit(accepted, cluster.plan)).emitted == ()
            assert await cluster.stored_keys("x") == []

    @async_test
    async def test_late_activation_of_waiting_execution_keeps_its_timer(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            starter, relay = cluster.process(), cluster.process()
            accepted = await cluster.accept()
            (a,) = (await relay.begin("x")).emitted
            await cluster.complete(relay, a, Suspend(until=SystemClock().now() + 60_000))
            assert await cluster.stored_keys("x") == []  # the waiting execution was unloaded
            due = await cluster.due_time("x")
            assert due is not None
            assert (await starter.admit(accepted, cluster.plan)).emitted == ()
            assert await cluster.due_time("x") == due

    @async_test
    async def test_concurrent_processes_finish_fan_out_once(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, fan()) as cluster:
            states = [cluster.process() for _ in range(3)]
            (split,) = (await states[0].admit(await cluster.accept(), cluster.plan)).emitted
            items = (await cluster.complete(states[1], split, FanOut(40, Inline(b"[]")))).emitted
            twice = (cluster.complete(state, item) for item in items for state in states[:2])
            applied = await asyncio.gather(*twice)
            (gathers,) = [token for each in applied for token in each.emitted]
            ends = await asyncio.gather(*(cluster.complete(state, gathers) for state in states))
            assert [each.finish.status for each in ends if each.finish is not None] == ["completed"]

    @on_own_server
    async def test_state_is_rebuilt_from_journal_after_restart(
        self, cluster: RedisCluster, server: RedisServer
    ) -> None:
        state = cluster.process()
        (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
        (b,) = (await cluster.complete(state, a)).emitted
        mine = await state.claim("x", b, "me", leased=True)
        assert mine.fence is not None
        server.restart()
        with pytest.raises(StoreUnavailableError):
            await state.renew("x", b.node, b.path, mine.fence)
        assert not await state.renew("x", b.node, b.path, mine.fence)
        again = await state.claim("x", b, "me", leased=True)
        assert (again.verdict, again.recovered) == ("run", True)
        assert again.fence is not None
        assert again.fence > mine.fence
        assert (await state.claim("x", a, "me", leased=True)).verdict == "done"
        (c,) = (await cluster.complete(state, b)).emitted
        assert (await cluster.complete(state, c)).finish is not None

    @on_own_server
    async def test_running_executions_are_found_after_restart(
        self, cluster: RedisCluster, server: RedisServer
    ) -> None:
        state = cluster.process()
        for number in range(30):
            (a,) = (await state.admit(await cluster.accept(f"x{number}"), cluster.plan)).emitted
            await cluster.complete(state, a, execution=f"x{number}")
        await cluster.journal.record("x7", [ExecutionEnded(1, "cancelled")])
        server.restart()
        found: set[str] = set()
        while len(found) < 29:
            try:
                fired = await state.due_timers(10)
            except StoreUnavailableError:
                continue
            found |= {each.execution for each in fired for token in each.emitted if token.node == 2}
        assert "x7" not in found
        assert [each for each in await state.due_timers(100) if each.emitted] == []

    @async_test
    async def test_unreadable_execution_does_not_block_timers(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            state = cluster.process()
            (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
            keys = KeySpace(cluster.prefix)
            stores = RedisStores(redis_server().url, prefix=cluster.prefix)
            await stores.client.call("ZADD", keys.due(keys.partition("gone")), 1, "gone")
            await cluster.accept("newer")
            await stores.client.call("ZADD", keys.due(keys.partition("newer")), 1, "newer")
            cluster.unreadable.add("newer")
            other = cluster.process()
            await state.claim("x", a, "me", leased=False)
            assert [each for each in await other.due_timers(10) if each.emitted] == []
            later = await other.next_due()
            assert later is not None
            assert later > SystemClock().now(), "an unreadable execution is retried, but not at once"
            await stores.client.close()

    @on_own_server
    async def test_flushed_server_is_rebuilt(self, cluster: RedisCluster, server: RedisServer) -> None:
        state, other = cluster.process(), cluster.process()
        (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
        await other.due_timers(1)
        async with asyncio.timeout(60):
            stores = RedisStores(server.url)
            await stores.client.call("FLUSHALL")
            await stores.client.close()
            found: list[Token] = []
            while not found:
                found = [token for each in await other.due_timers(10) for token in each.emitted]
        assert found == [a]
        late = cluster.process()
        assert (await late.claim("x", a, "me", leased=True)).verdict == "run"
        assert (await state.claim("x", a, "me", leased=True)).verdict == "held", (
            "all processes share one state"
        )

    @on_own_server
    async def test_wait_timer_survives_restart(self, cluster: RedisCluster, server: RedisServer) -> None:
        state = cluster.process()
        (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
        due = SystemClock().now() + 2_500
        await cluster.complete(state, a, Suspend(until=due))
        server.restart()
        other = cluster.process()
        woken: list[Token] = []
        while not woken:
            woken = [token for each in await other.due_timers(10) for token in each.emitted]
        assert SystemClock().now() >= due
        assert (woken[0].node, woken[0].resumed) == (a.node, True)

    @async_test
    async def test_lease_of_long_rebuild_is_renewed(
        self, tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rebuild, "RENEWAL_S", 0.05)
        async with redis_cluster(tmp_path, server.url, chain()) as cluster:
            state, client = cluster.process(), Client(server.url)
            (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
            (b,) = (await cluster.complete(state, a)).emitted
            fields, *_, lease, _, _ = KeySpace(cluster.prefix).of("x")
            await client.call("DEL", fields)
            may_read, read = asyncio.Event(), cluster.journal.facts

            async def read_late(execution: str, after: int = 0) -> list[StoredFact]:
                await may_read.wait()
                return list(await read(execution, after))

            monkeypatch.setattr(cluster.journal, "facts", read_late)
            claim = asyncio.create_task(state.claim("x", b, "me", leased=True))
            await until_renewed(client, lease)
            may_read.set()
            assert (await claim).verdict == "run"
            await client.close()

    @async_test
    async def test_lease_is_renewed_while_many_facts_are_replayed(
        self, tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rebuild, "RENEWAL_S", 0.05)
        monkeypatch.setattr(rebuild, "MAX_INLINE_FACTS", 0)
        async with redis_cluster(tmp_path, server.url, chain()) as cluster:
            state, client = cluster.process(), Client(server.url)
            (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
            (b,) = (await cluster.complete(state, a)).emitted
            fields, *_, lease, _, _ = KeySpace(cluster.prefix).of("x")
            await client.call("DEL", fields)
            may_replay = threading.Event()

            def replay_late(*arguments: Any) -> Any:
                assert may_replay.wait(30), "the event loop is blocked"
                return fold(*arguments)

            monkeypatch.setattr(rebuild, "fold", replay_late)
            claim = asyncio.create_task(state.claim("x", b, "me", leased=True))
            await until_renewed(client, lease)
            may_replay.set()
            assert (await claim).verdict == "run"
            await client.close()


class TestDeliveries:
    @async_test
    async def test_token_of_dead_worker_is_redelivered(self, tmp_path: Path) -> None:
        keys = fresh_keys()
        async with redis_queue(keys, "dies", idle=0.2) as first:
            await first.send("x", [Token(7)])
            lost = await first.receive()
            for each in first._loops:
                each.cancel()  # stops renewing
            async with redis_queue(keys, "lives", idle=0.2) as other:
                again = await other.receive()
                assert (again.token, again.again, lost.again) == (Token(7), True, False)
                await other.ack(again)

    @async_test
    async def test_token_of_slow_worker_is_not_redelivered(self, tmp_path: Path) -> None:
        keys = fresh_keys()
        async with (
            redis_queue(keys, "slow", idle=0.2) as slow,
            redis_queue(keys, "other", idle=0.2) as other,
        ):
            await slow.send("x", [Token(7)])
            held = await slow.receive()
            waiting = asyncio.create_task(other.receive())
            done, _ = await asyncio.wait([waiting], timeout=1.0)
            assert not done
            await slow.ack(held)
            await other.send("x", [Token(8)])
            assert (await waiting).token == Token(8)

    @async_test
    async def test_consumer_groups_are_recreated_after_flush(self, server: RedisServer) -> None:
        stores = RedisStores(server.url)
        queue = stores.queue("one")
        await queue.send("x", [Token(1)])
        await queue.ack(await queue.receive())
        waiting = asyncio.create_task(queue.receive())
        await stores.client.call("FLUSHALL")
        await queue.send("x", [Token(2)])
        assert (await waiting).token == Token(2)
        await queue.close()
        await stores.client.close()
        await stores._blocking.close()

    @async_test
    async def test_named_queue_is_read_by_its_workers(self, tmp_path: Path) -> None:
        stores = RedisStores(redis_server().url, prefix=fresh_keys().prefix)

        async def route(execution: str, token: Token) -> str:
            return "gpu" if token.node == 9 else "default"

        plain, gpu = stores.queue("plain", route=route), stores.queue("gpu", ("gpu",))
        await plain.send("x", [Token(9), Token(1)])
        assert (await gpu.receive()).token == Token(9)
        assert (await plain.receive()).token == Token(1)
        await plain.close()
        await gpu.close()
        await stores.client.close()
        await stores._blocking.close()

    @async_test
    async def test_earlier_timer_wakes_sleeping_clock(self, tmp_path: Path) -> None:
        async with redis_cluster(tmp_path, redis_server().url, chain()) as cluster:
            clock = SystemClock()
            stores = RedisStores(redis_server().url, prefix=cluster.prefix)
            async with stores.running(clock):
                await clock.sleep_until(None)  # the wake-up on subscribe
                sleeping = asyncio.create_task(clock.sleep_until(None))
                state = cluster.process()
                (a,) = (await state.admit(await cluster.accept(), cluster.plan)).emitted
                await cluster.complete(state, a, Suspend(until=clock.now() + 1_000))
                await sleeping
