"""Hazards D and F where Redis holds the state: on a real server."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import ARRIVE
from rune.adapters.redis.keys import KeySpace
from rune.adapters.redis.state import RedisState
from rune.adapters.redis.streams import NOTHING_SENT
from rune.adapters.sqlite.journal import SqliteJournal
from rune.codec.facts import Inline
from rune.core.execution.outcome import Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.runtime.clock import SystemClock
from rune.testing.clock import VirtualClock
from tests.contract.suites.world import chain
from tests.contract.test_embedded import opened
from tests.contract.test_redis import fresh_keys
from tests.contract.test_redis_server import cluster
from tests.support.services.redis_server import RedisServer, redis_server

SENT_AGAIN = 60_001  # ms: as long as somebody else has for sending what it was given


class World:
    """One execution of a chain, its journal, and its state in Redis."""

    def __init__(self, journal: SqliteJournal, client: Client, keys: KeySpace, clock: VirtualClock) -> None:
        self.keys = keys
        self.client = client
        self._journal = journal
        self._clock = clock
        self.state = RedisState(client, keys, journal, self._plan, clock=clock)

    async def _plan(self, hash: str) -> Plan:
        return chain()

    async def begin(self) -> Token:
        plan, now = chain(), self._clock.now()
        accepted = ExecutionRecord(id="x", workflow="w", hash=plan.hash, at=now, input=b"{}")
        (first,) = (await self.state.admit(await self._journal.accept(accepted), plan)).emitted
        return first

    async def suspend(self, token: Token, ms: int) -> None:
        now = self._clock.now()
        decision = step(chain(), token, Suspend(until=now + ms), now)
        assert decision.fact is not None
        await self._journal.record("x", [decision.fact])
        await self.state.apply("x", [decision])

    async def image(self) -> list[bytes | None]:
        """Everything that the server has of the execution."""
        return [await self.client.call("DUMP", key) for key in self.keys.of("x")]


@asynccontextmanager
async def world(folder: pathlib.Path, clock: VirtualClock) -> AsyncIterator[World]:
    keys = fresh_keys()
    async with opened(folder, clock) as embedded:
        client = Client(redis_server().url, incarnation_key=keys.incarnation)
        try:
            yield World(embedded.journal, client, keys, clock)
        finally:
            await client.close()


def test_h_d14_a_script_that_breaks_off_has_changed_nothing(tmp_path: pathlib.Path) -> None:
    # fault: d14: what a script puts is written at once
    async def go() -> tuple[list[bytes | None], list[bytes | None]]:
        clock = VirtualClock()
        async with world(tmp_path, clock) as here:
            token = await here.begin()
            before = await here.image()
            good = step(chain(), token, Output(Inline(b"1")), clock.now())
            known = await here.state._executions.of("x")
            ((*head, effects),) = msgspec.msgpack.decode(known.instructions.packed([good]))
            broken = msgspec.msgpack.encode(
                [[*head, [*effects, [ARRIVE]]]]
            )  # the last effect lacks everything
            with pytest.raises(RedisError):
                await here.state.run("apply", "x", broken, *NOTHING_SENT)
            return before, await here.image()

    before, after = asyncio.run(go())
    assert before == after


@pytest.mark.parametrize("execution", ["x", "x01a1dee509d114ac627500fc20", "{p00}", "a}b{c"])
def test_h_d19_what_changes_together_lies_together(execution: str) -> None:
    # fault: d19: the names of an execution's keys lack the tag of its partition
    keys = KeySpace()
    part = keys.partition(execution)
    shared = [keys.due(part), keys.held(part), keys.later(part), keys.stream(part, "gpu", "high")]
    tags = {each[each.index("{") + 1 : each.index("}")] for each in (*keys.of(execution), *shared)}
    assert tags == {f"p{part:02d}"}


def test_h_f2_what_a_timer_woke_and_nobody_sent_is_sent_again(tmp_path: pathlib.Path) -> None:
    # fault: f2: what a script leaves for others to send is not looked after
    async def go() -> tuple[list[Token], list[Token], list[Token]]:
        clock = VirtualClock()
        async with world(tmp_path, clock) as here:
            await here.suspend(await here.begin(), 1_000)
            clock.advance(1_000)
            woken = [token for each in await here.state.due_timers(10) for token in each.emitted]
            early = [token for _, token, _ in await here.state.unclaimed_tokens(10)]
            clock.advance(SENT_AGAIN)  # whoever was to send it died
            return woken, early, [token for _, token, _ in await here.state.unclaimed_tokens(10)]

    woken, early, late = asyncio.run(go())
    assert (len(woken), early) == (1, [])
    assert late == woken


def test_h_f6_a_timer_outlives_a_redis_that_keeps_nothing(tmp_path: pathlib.Path) -> None:
    # fault: f6: after a loss nobody goes through the journal
    async def go(server: RedisServer) -> list[Token]:
        async with cluster(tmp_path, server.url, chain()) as here:
            (first,) = (await here.process().admit(await here.accept(), here.plan)).emitted
            state = here.process()
            await here.done(state, first, Suspend(until=SystemClock().now() + 2_500))
            server.restart()
            other = here.process()
            woken: list[Token] = []
            patience = time.monotonic() + 10
            while not woken and time.monotonic() < patience:
                woken = [token for each in await other.due_timers(10) for token in each.emitted]
            return woken

    server = RedisServer()
    try:
        woken = asyncio.run(go(server))
    finally:
        server.stop()
    assert [(each.node, each.resumed) for each in woken] == [(1, True)]
