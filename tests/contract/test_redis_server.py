"""What the Redis adapters make of the server they are given: fit or not, away, started again, emptied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rune.adapters.redis.checks import UnsuitableServerError, check
from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.state import RedisState
from rune.adapters.redis.stores import RedisStores
from rune.adapters.sqlite.journal import SqliteJournal
from rune.codec.facts import Inline
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import FanOut, Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, NewerFormatError, StoreUnavailableError
from rune.ports.state import Applied
from rune.runtime.clock import SystemClock
from tests.contract.suites.scenario import scenario
from tests.contract.suites.world import chain, fan
from tests.contract.test_embedded import opened
from tests.contract.test_redis import fresh_keys, opened_queue
from tests.support.services.redis_server import RedisServer, redis_server

S = TypeVar("S")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of one test's own, which it may treat badly."""
    server = RedisServer()
    yield server
    server.stop()


class Cluster:
    """A journal, and states of several processes over it."""

    def __init__(self, journal: SqliteJournal, url: str, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.prefix = fresh_keys().prefix
        self._url = url
        self._stores: list[RedisStores] = []
        self.unreadable: set[str] = set()

    def process(self, *, streams: bool = False) -> RedisState:
        """The state as one more process sees it."""
        stores = RedisStores(self._url, prefix=self.prefix)
        self._stores.append(stores)
        queue = stores.queue(f"worker-{len(self._stores)}") if streams else None
        return stores.state(self.journal, self._plan, queue=queue, running_executions=self._roll)

    async def _plan(self, hash: str) -> Plan:
        if hash in self.unreadable:
            raise NewerFormatError(hash)
        return self.plan

    async def _roll(self, after: str, limit: int) -> Sequence[tuple[str, int | None]]:
        rows = self.journal.waking((-1, 0), 1 << 60, 1 << 30)
        found = sorted((execution, 0) for _, _, execution in rows)
        return [each for each in found if each[0] > after][:limit]

    async def accept(self, execution: str = "x") -> ExecutionRecord:
        now = SystemClock().now()
        hash = execution if execution == "newer" else self.plan.hash
        return await self.journal.accept(
            ExecutionRecord(id=execution, workflow="w", hash=hash, at=now, input=b"{}")
        )

    async def done(
        self, state: RedisState, token: Token, outcome: object = None, execution: str = "x"
    ) -> Applied:
        ended = step(self.plan, token, outcome or Output(Inline(b"1")), SystemClock().now())  # type: ignore[arg-type]
        assert ended.fact is not None
        await self.journal.record(execution, [ended.fact])
        return await state.apply(execution, [ended])

    async def close(self) -> None:
        for stores in self._stores:
            await stores.client.close()


@asynccontextmanager
async def cluster(folder: Path, url: str, plan: Plan) -> AsyncIterator[Cluster]:
    async with opened(folder, SystemClock()) as embedded:
        made = Cluster(embedded.journal, url, plan)
        try:
            yield made
        finally:
            await made.close()


def run(body: object) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await body  # type: ignore[misc]

    asyncio.run(within())


def on_own_server(
    body: Callable[[S, Cluster, RedisServer], Coroutine[Any, Any, None]],
) -> Callable[[S, RedisServer, Path], None]:
    """A test method with a cluster over a server that it may treat badly."""

    def test(self: S, server: RedisServer, tmp_path: Path) -> None:
        async def within() -> None:
            async with cluster(tmp_path, server.url, chain()) as world:
                await body(self, world, server)

        run(within())

    test.__name__ = test.__qualname__ = body.__name__
    return test


class TestClient:
    @scenario
    async def test_calls_of_one_turn_are_answered_each_with_its_own(self, folder: Path) -> None:
        client = Client(redis_server().url)
        answers = await asyncio.gather(*(client.call("ECHO", str(number)) for number in range(1_000)))
        assert answers == [str(number).encode() for number in range(1_000)]
        await client.close()

    @scenario
    async def test_a_refusal_is_its_callers_alone(self, folder: Path) -> None:
        client = Client(redis_server().url)
        calls = (client.call("PING"), client.call("NONSENSE"), client.call("PING"))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in answers] == [bytes, RedisError, bytes]
        await client.close()

    def test_a_server_that_went_away_is_away_and_comes_back(self, server: RedisServer) -> None:
        async def body() -> None:
            client = Client(server.url, incarnation_key="rune:incarnation")
            first, number = await client.incarnation()
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await asyncio.gather(*(client.call("PING") for _ in range(3)))
            server.restart()
            assert await client.call("PING") == b"PONG"
            second, higher = await client.incarnation()
            assert second != first
            assert higher > number
            await client.close()

        run(body())

    def test_a_server_that_answers_nothing_is_away(self, tmp_path: Path) -> None:
        async def body() -> None:
            async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read()
                writer.close()

            path = str(tmp_path / "mute.sock")
            async with await asyncio.start_unix_server(mute, path):
                client = Client(f"unix://{path}", deadline=0.05)
                with pytest.raises(StoreUnavailableError):
                    await client.call("PING")
                await client.close()

        run(body())


class TestFitness:
    @scenario
    async def test_a_fit_server_is_taken_and_its_partitions_are_fixed(self, folder: Path) -> None:
        keys = fresh_keys()
        client = Client(redis_server().url)
        await check(client, keys)
        await check(client, KeySpace(keys.prefix))
        with pytest.raises(UnsuitableServerError, match="16 partitions"):
            await check(client, KeySpace(keys.prefix, 8))
        await client.close()

    def test_what_would_throw_state_away_is_refused(
        self, server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def body() -> None:
            client = Client(server.url)
            with caplog.at_level(logging.WARNING):
                await check(client, KeySpace())
            assert "append-only" in caplog.text
            await client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            with pytest.raises(UnsuitableServerError, match="noeviction"):
                await check(client, KeySpace())
            await client.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await client.call("REPLICAOF", "127.0.0.1", "1")
            with pytest.raises(UnsuitableServerError, match="replica"):
                await check(client, KeySpace())
            await client.close()

        run(body())

    def test_a_user_who_may_not_do_what_is_needed_is_told(self, server: RedisServer) -> None:
        async def body() -> None:
            admin = Client(server.url)
            await admin.call("ACL", "SETUSER", "default", "-xautoclaim")
            with pytest.raises(UnsuitableServerError, match="XAUTOCLAIM"):
                await check(admin, KeySpace())
            await admin.close()

        run(body())


class TestProcesses:
    @scenario
    async def test_what_one_process_does_another_sees(self, folder: Path) -> None:
        async with cluster(folder, redis_server().url, chain()) as world:
            one, other = world.process(), world.process()
            (a,) = (await one.admit(await world.accept(), world.plan)).emitted
            assert (await other.begin("x")).emitted == ()
            assert (
                await other.admit(
                    ExecutionRecord(id="x", workflow="w", hash="h", at=1, input=b""), world.plan
                )
            ).emitted == ()
            (b,) = (await world.done(other, a)).emitted
            mine = await one.claim("x", b, "one", leased=True)
            assert (mine.verdict, (await other.claim("x", b, "other", leased=True)).verdict) == (
                "run",
                "held",
            )
            assert mine.fence is not None
            assert await other.renew("x", b.node, b.path, mine.fence)

    @scenario
    async def test_many_processes_at_one_fan_out_end_it_once(self, folder: Path) -> None:
        async with cluster(folder, redis_server().url, fan()) as world:
            states = [world.process() for _ in range(3)]
            (split,) = (await states[0].admit(await world.accept(), world.plan)).emitted
            items = (await world.done(states[1], split, FanOut(40, Inline(b"[]")))).emitted
            twice = (world.done(state, item) for item in items for state in states[:2])
            applied = await asyncio.gather(*twice)
            (gathers,) = [token for each in applied for token in each.emitted]
            ends = await asyncio.gather(*(world.done(state, gathers) for state in states))
            assert [each.finish.status for each in ends if each.finish is not None] == ["completed"]

    @on_own_server
    async def test_after_a_restart_of_the_server_it_goes_on_from_the_journal(
        self, world: Cluster, server: RedisServer
    ) -> None:
        state = world.process()
        (a,) = (await state.admit(await world.accept(), world.plan)).emitted
        (b,) = (await world.done(state, a)).emitted
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
        (c,) = (await world.done(state, b)).emitted
        assert (await world.done(state, c)).finish is not None

    @on_own_server
    async def test_after_a_loss_everything_that_runs_is_found_without_being_touched(
        self, world: Cluster, server: RedisServer
    ) -> None:
        state = world.process()
        for number in range(30):
            (a,) = (await state.admit(await world.accept(f"x{number}"), world.plan)).emitted
            await world.done(state, a, execution=f"x{number}")
        await world.journal.record("x7", [ExecutionEnded(1, "cancelled")])
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

    @scenario
    async def test_an_execution_that_cannot_be_read_holds_up_nobody(self, folder: Path) -> None:
        async with cluster(folder, redis_server().url, chain()) as world:
            state = world.process()
            (a,) = (await state.admit(await world.accept(), world.plan)).emitted
            keys = KeySpace(world.prefix)
            stores = RedisStores(redis_server().url, prefix=world.prefix)
            await stores.client.call("ZADD", keys.due(keys.partition("gone")), 1, "gone")
            await world.accept("newer")
            await stores.client.call("ZADD", keys.due(keys.partition("newer")), 1, "newer")
            world.unreadable.add("newer")
            other = world.process()
            await state.claim("x", a, "me", leased=False)
            assert [each for each in await other.due_timers(10) if each.emitted] == []
            later = await other.next_due()
            assert later is not None
            assert later > SystemClock().now(), "what cannot be read is looked at again, but not at once"
            await stores.client.close()

    @on_own_server
    async def test_a_server_that_was_emptied_is_filled_again_although_it_never_stopped(
        self, world: Cluster, server: RedisServer
    ) -> None:
        state, other = world.process(), world.process()
        (a,) = (await state.admit(await world.accept(), world.plan)).emitted
        await other.due_timers(1)
        async with asyncio.timeout(60):
            stores = RedisStores(server.url)
            await stores.client.call("FLUSHALL")
            await stores.client.close()
            found: list[Token] = []
            while not found:
                found = [token for each in await other.due_timers(10) for token in each.emitted]
        assert found == [a]
        late = world.process()
        assert (await late.claim("x", a, "me", leased=True)).verdict == "run"
        assert (await state.claim("x", a, "me", leased=True)).verdict == "held", "all see one state"

    @on_own_server
    async def test_a_sleeper_is_woken_although_the_server_forgot_it(
        self, world: Cluster, server: RedisServer
    ) -> None:
        state = world.process()
        (a,) = (await state.admit(await world.accept(), world.plan)).emitted
        due = SystemClock().now() + 2_500
        await world.done(state, a, Suspend(until=due))
        server.restart()
        other = world.process()
        woken: list[Token] = []
        while not woken:
            woken = [token for each in await other.due_timers(10) for token in each.emitted]
        assert SystemClock().now() >= due
        assert (woken[0].node, woken[0].resumed) == (a.node, True)


class TestDeliveries:
    @scenario
    async def test_what_a_dead_worker_held_is_handed_out_again(self, folder: Path) -> None:
        keys = fresh_keys()
        async with opened_queue(keys, "dies", idle=0.2) as first:
            await first.send("x", [Token(7)])
            lost = await first.receive()
            for each in first._loops:
                each.cancel()  # it renews nothing any more
            async with opened_queue(keys, "lives", idle=0.2) as other:
                again = await other.receive()
                assert (again.token, again.again, lost.again) == (Token(7), True, False)
                await other.ack(again)

    @scenario
    async def test_what_takes_long_is_not_taken_for_lost(self, folder: Path) -> None:
        keys = fresh_keys()
        async with (
            opened_queue(keys, "slow", idle=0.2) as slow,
            opened_queue(keys, "other", idle=0.2) as other,
        ):
            await slow.send("x", [Token(7)])
            held = await slow.receive()
            waiting = asyncio.create_task(other.receive())
            done, _ = await asyncio.wait([waiting], timeout=1.0)
            assert not done
            await slow.ack(held)
            await other.send("x", [Token(8)])
            assert (await waiting).token == Token(8)

    def test_a_server_that_lost_its_groups_is_given_them_again(self, server: RedisServer) -> None:
        async def body() -> None:
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

        run(body())

    @scenario
    async def test_named_queues_are_read_by_those_who_serve_them(self, folder: Path) -> None:
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

    @scenario
    async def test_a_nearer_timer_wakes_whoever_sleeps(self, folder: Path) -> None:
        async with cluster(folder, redis_server().url, chain()) as world:
            clock = SystemClock()
            stores = RedisStores(redis_server().url, prefix=world.prefix)
            async with stores.running(clock):
                await clock.sleep_until(None)  # the greeting
                sleeping = asyncio.create_task(clock.sleep_until(None))
                state = world.process()
                (a,) = (await state.admit(await world.accept(), world.plan)).emitted
                await world.done(state, a, Suspend(until=clock.now() + 60_000))
                await sleeping
