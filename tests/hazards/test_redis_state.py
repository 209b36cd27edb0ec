"""Hazards D and F of the state in Redis, on a real server."""

from __future__ import annotations

import asyncio
import pathlib
import time

import msgspec
import pytest

from rune.adapters.redis.client import RedisError
from rune.adapters.redis.encoding import ARRIVE, KeySpace
from rune.adapters.redis.streams import NOTHING_SENT
from rune.core.execution.outcome import Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.ports.clock import SystemClock
from rune.testing.harness import VirtualClock
from tests.contract.suites.state_driver import chain
from tests.support.chain_execution import open_execution
from tests.support.redis_stores import redis_cluster
from tests.support.services.redis_server import RedisServer

UNSENT_AFTER_MS = 5_001  # the time that a process has to send the tokens that it was given


def test_h_d14_failed_script_changes_nothing(tmp_path: pathlib.Path) -> None:
    # fault: d14: a script writes its changes at once
    async def go() -> tuple[list[bytes | None], list[bytes | None]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            token = await execution.begin()
            before = await execution.dump()
            good = step(chain(), token, Output(Inline(b"1")), clock.now())
            known = await execution.state._executions.of("x")
            ((*head, effects),) = msgspec.msgpack.decode(known.instructions.packed([good]))
            broken = msgspec.msgpack.encode(
                [[*head, [*effects, [ARRIVE]]]]
            )  # the last effect has no arguments
            with pytest.raises(RedisError):
                await execution.state.run("apply", "x", broken, *NOTHING_SENT)
            return before, await execution.dump()

    before, after = asyncio.run(go())
    assert before == after


@pytest.mark.parametrize("execution", ["x", "x01a1dee509d114ac627500fc20", "{p00}", "a}b{c"])
def test_h_d19_keys_of_execution_share_hash_tag(execution: str) -> None:
    # fault: d19: the names of an execution's keys lack the tag of its partition
    keys = KeySpace()
    part = keys.partition(execution)
    shared = [keys.due(part), keys.held(part), keys.later(part), keys.stream(part, "gpu", "high")]
    tags = {each[each.index("{") + 1 : each.index("}")] for each in (*keys.of(execution), *shared)}
    assert tags == {f"p{part:02d}"}


def test_h_f2_unsent_token_of_timer_is_sent_again(tmp_path: pathlib.Path) -> None:
    # fault: f2: tokens that a script leaves to be sent are not tracked
    async def go() -> tuple[list[Token], list[Token], list[Token]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            await execution.suspend(await execution.begin(), 1_000)
            clock.advance(1_000)
            woken = [token for each in await execution.state.due_timers(10) for token in each.emitted]
            early = [token for _, token, _ in await execution.state.unclaimed_tokens(10)]
            clock.advance(UNSENT_AFTER_MS)  # the process that had to send it is gone
            return woken, early, [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    woken, early, late = asyncio.run(go())
    assert (len(woken), early) == (1, [])
    assert late == woken


def test_h_f6_timer_survives_restart_of_redis_without_persistence(tmp_path: pathlib.Path) -> None:
    # fault: f6: after a loss the journal is not read
    async def go(server: RedisServer) -> list[Token]:
        async with redis_cluster(tmp_path, server.url, chain()) as here:
            (first,) = (await here.process().admit(await here.accept(), here.plan)).emitted
            state = here.process()
            await here.complete(state, first, Suspend(until=SystemClock().now() + 2_500))
            server.restart()
            other = here.process()
            woken: list[Token] = []
            deadline = time.monotonic() + 10
            while not woken and time.monotonic() < deadline:
                woken = [token for each in await other.due_timers(10) for token in each.emitted]
            return woken

    server = RedisServer()
    try:
        woken = asyncio.run(go(server))
    finally:
        server.stop()
    assert [(each.node, each.resumed) for each in woken] == [(1, True)]
