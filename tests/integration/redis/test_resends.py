"""When the sweeper resends a token: soon while its sending is not confirmed, late once it is."""

from __future__ import annotations

import asyncio
import pathlib
import time

import pytest

from rune.adapters.redis.encoding import SEND_MARKS, unsent_mark
from rune.adapters.redis.processes import SEARCH_EXPIRY_MS, RedisSearchTimes
from rune.adapters.redis.state import RedisState
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.core.format import FORMAT
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.runtime.plan_cache import MissingNodeTypeError
from rune.testing.harness import VirtualClock
from tests.contract.suites.state_driver import chain
from tests.support.chain_execution import ChainExecution, open_execution
from tests.support.waiting import until

UNSENT_AFTER_MS = 5_001  # the time that a process has to send the tokens that it was given
RESEND_AFTER_MS = 60_001  # the time after which a token that was sent and never claimed counts as lost
LEASE_MS = 7_500


def test_confirmed_token_is_not_sent_again_before_it_counts_as_lost(tmp_path: pathlib.Path) -> None:
    async def unclaimed(execution: ChainExecution) -> list[Token]:
        return [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    async def go() -> tuple[Token, list[Token], list[Token], list[Token]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            first = await execution.begin()
            execution.state.confirmations.add("x", [first])
            await execution.state.confirmations.report()
            clock.advance(UNSENT_AFTER_MS)
            waiting = await unclaimed(execution)
            clock.advance(RESEND_AFTER_MS - UNSENT_AFTER_MS)
            lost = await unclaimed(execution)
            clock.advance(UNSENT_AFTER_MS)  # the process that had to send it again is gone
            return first, waiting, lost, await unclaimed(execution)

    first, waiting, lost, again = asyncio.run(go())
    assert (waiting, lost, again) == ([], [first], [first])


def test_late_confirmation_does_not_delay_resumed_token(tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[list[Token], list[Token]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            first = await execution.begin()
            execution.state.confirmations.add("x", [first])
            await execution.suspend(first, 1_000)
            clock.advance(1_000)
            woken = [token for each in await execution.state.due_timers(10) for token in each.emitted]
            await execution.state.confirmations.report()
            clock.advance(UNSENT_AFTER_MS)  # the process that had to send the resumed token is gone
            return woken, [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    woken, late = asyncio.run(go())
    assert len(woken) == 1
    assert late == woken


@pytest.mark.parametrize("late", [0, 3_000])
def test_confirmation_of_claimed_token_does_not_extend_its_lease(tmp_path: pathlib.Path, late: int) -> None:
    async def go() -> tuple[Token, list[Token]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            first = await execution.begin()
            mark = unsent_mark(first.attempt, resumed=False)
            clock.advance(
                (mark - LEASE_MS - clock.now()) % SEND_MARKS
            )  # the lease would end at a marked time
            assert (await execution.state.claim("x", first, "w", leased=True)).fence is not None
            clock.advance(late)
            execution.state.confirmations.add("x", [first])
            await execution.state.confirmations.report()
            clock.advance(LEASE_MS + 1 - late)
            return first, [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    first, expired = asyncio.run(go())
    assert expired == [first]


def test_confirmation_is_not_reported_after_the_end_of_its_execution(tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[Token, list[Token]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            first = await execution.begin()
            execution.state.confirmations.add("x", [first])
            execution.state.forget(["x"])
            await execution.state.confirmations.report()
            clock.advance(UNSENT_AFTER_MS)
            return first, [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    first, unconfirmed = asyncio.run(go())
    assert unconfirmed == [first]


@pytest.mark.parametrize("ended", [True, False])
def test_late_message_is_decided_without_a_fold(tmp_path: pathlib.Path, ended: bool) -> None:
    async def go() -> tuple[str, int]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            first = await execution.begin()
            if ended:
                await execution.journal.record("x", [ExecutionEnded(clock.now(), "completed")])
            else:
                await execution.suspend(first, 3_600_000)
            await execution.client.call("DEL", *execution.keys.of("x"))
            claim = await execution.state.claim("x", first, "w", leased=True)
            return claim.verdict, execution.state.rebuilds

    assert asyncio.run(go()) == ("void" if ended else "done", 0)


def test_lost_tokens_are_sent_by_a_scheduler_without_the_node_type(tmp_path: pathlib.Path) -> None:
    async def plans(hash: str) -> Plan:
        if hash == "newer":
            raise MissingNodeTypeError(
                "this process was started without the node type `shop.new`", "shop.new"
            )
        return chain()

    async def go() -> list[tuple[str, int]]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            await execution.begin()
            newer = ExecutionRecord(
                id="a", workflow="w", hash="newer", at=clock.now(), input=Inline(b"{}"), priority=8
            )
            await execution.state.admit(await execution.journal.accept(newer), chain())
            clock.advance(UNSENT_AFTER_MS)
            other = RedisState(execution.client, execution.keys, execution.journal, plans, clock=clock)
            found = await other.unclaimed_tokens(10)
            return sorted((name, priority) for name, _, priority in found)

    assert asyncio.run(go()) == [("a", 8), ("x", 5)]


def test_execution_that_a_scheduler_cannot_read_does_not_keep_the_tokens_of_others(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def plans(hash: str) -> Plan:
        return chain()

    async def go() -> list[str]:
        clock = VirtualClock()
        async with open_execution(tmp_path, clock) as execution:
            await execution.begin()
            newer = ExecutionRecord(
                id="a", workflow="w", hash="h", at=clock.now(), input=Inline(b"{}"), format=FORMAT + 1
            )
            await execution.state.admit(await execution.journal.accept(newer), chain())
            clock.advance(UNSENT_AFTER_MS)
            other = RedisState(execution.client, execution.keys, execution.journal, plans, clock=clock)
            return [name for name, _, _ in await other.unclaimed_tokens(10)]

    assert asyncio.run(go()) == ["x"]
    assert "lost tokens of a are not sent: NewerFormatError: " in caplog.text


def test_search_for_token_keeps_its_begin_until_it_is_found(tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with open_execution(tmp_path, VirtualClock()) as execution:
            times = RedisSearchTimes(execution.client, execution.keys)
            token, other = ("x", Token(1)), ("x", Token(1, attempt=2))
            (begin,) = await times.since("lane", [token])
            await until(lambda: time.time() * 1000 > begin + 1)
            assert (await times.since("lane", [token, other]))[0] == begin
            await times.found("lane", [token], 0)
            (again,) = await times.since("lane", [token])
            assert again > begin
            await times.found("lane", [], again + SEARCH_EXPIRY_MS)
            assert not await times.resume("lane"), "both were forgotten"

    asyncio.run(go())


def test_resumed_search_lets_token_come_up_at_once(tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[Token, list[Token], list[Token]]:
        clock = VirtualClock(round(time.time() * 1000))
        async with open_execution(tmp_path, clock) as execution:
            times = RedisSearchTimes(execution.client, execution.keys)
            first = await execution.begin()
            execution.state.confirmations.add("x", [first])
            await execution.state.confirmations.report()
            await times.since("lane", [("x", first)])
            clock.advance(UNSENT_AFTER_MS)
            before = [token for _, token, _ in await execution.state.unclaimed_tokens(10)]
            assert await times.resume("lane")
            assert not await times.resume("lane")
            return first, before, [token for _, token, _ in await execution.state.unclaimed_tokens(10)]

    first, before, resumed = asyncio.run(go())
    assert (before, resumed) == ([], [first])
