"""Contract of states for signals: each resumes one waiting token, now or later, and survives state loss."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.core.execution.outcome import Suspend
from rune.core.execution.token import Token
from rune.ports.state import Listener
from rune.testing.harness import VirtualClock
from tests.contract.suites.state_driver import StateContractBase, StateDriver, chain, fan, joined
from tests.support.async_test import async_test

GO = Suspend(signal="go")
SIGNALLERS = 20


def _nodes_and_signals(tokens: list[Token]) -> list[tuple[int, str | None]]:
    return [(each.node, each.signal) for each in tokens]


class SignalContract(StateContractBase):
    """Signals and waiting tokens."""

    async def _suspend_first(self, driver: StateDriver) -> Token:
        """Suspend the first node of a chain until a signal."""
        (a,) = (await driver.accept()).emitted
        assert (await driver.complete(a, GO)).emitted == ()
        return a

    @async_test
    async def test_signal_resumes_waiting_token(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            a = await self._suspend_first(driver)
            (resumed,) = await driver.signal("s")
            assert (resumed.node, resumed.path, resumed.signal, resumed.resumed) == (a.node, (), "s", True)
            assert await driver.state.waiting_for_signal("x") == []
            claim = await driver.state.claim("x", resumed, "me", leased=False)
            assert (claim.verdict, claim.token.signal) == ("run", "s")
            (b,) = (await driver.complete(resumed)).emitted
            assert (b.node, b.signal, b.resumed) == (driver.node("b"), None, False)

    @async_test
    async def test_signal_resumes_token_of_idle_execution(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            a = await self._suspend_first(driver)
            await driver.settle()
            driver.clock.advance(10_000_000)
            assert await driver.fire_timers() == []
            assert _nodes_and_signals(await driver.signal("s")) == [(a.node, "s")]

    @async_test
    async def test_claim_of_token_before_wait_returns_done(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            a = await self._suspend_first(driver)
            assert await driver.claim_all([a]) == ["done"]
            await driver.signal("s")
            assert await driver.claim_all([a]) == ["done"]

    @async_test
    async def test_signal_with_other_name_is_not_consumed(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            a = await self._suspend_first(driver)
            assert await driver.signal("s", "stop") == []
            assert await driver.state.waiting_for_signal("x") == [Listener("go", a.node, ())]
            assert _nodes_and_signals(await driver.signal("t", "go")) == [(a.node, "t")]

    @async_test
    async def test_early_signal_is_consumed_by_later_wait(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            assert await driver.signal("s") == []
            resumed = (await driver.complete(a, GO)).emitted
            assert _nodes_and_signals(list(resumed)) == [(a.node, "s")]
            assert await driver.state.waiting_for_signal("x") == []

    @async_test
    async def test_early_signals_are_consumed_in_order(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (token,) = (await driver.accept()).emitted
            for id in ("third", "second", "first"):
                assert await driver.signal(id) == []
                driver.clock.advance(1)
            taken = []
            for _ in range(3):
                (resumed,) = (await driver.complete(token, GO)).emitted
                taken.append(resumed.signal)
                (token, *_) = [*(await driver.complete(resumed)).emitted, resumed]
            assert taken == ["third", "second", "first"]

    @async_test
    async def test_longest_waiting_token_is_resumed_first(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            await driver.complete(b, GO)
            driver.clock.advance(5)
            await driver.complete(a, GO)
            listening = [Listener("go", b.node, ()), Listener("go", a.node, ())]
            assert await driver.state.waiting_for_signal("x") == listening
            await driver.settle()
            assert await driver.state.waiting_for_signal("x") == listening
            assert _nodes_and_signals(await driver.signal("s")) == [(b.node, "s")]
            assert await driver.state.waiting_for_signal("x") == listening[1:]
            assert _nodes_and_signals(await driver.signal("t")) == [(a.node, "t")]

    @async_test
    async def test_waiting_for_signal_excludes_timed_waits(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            assert await driver.state.waiting_for_signal("x") == []
            await driver.complete(a, Suspend(signal="later"))
            driver.clock.advance(5)
            await driver.complete(b, Suspend(until=driver.clock.now() + 60_000))
            assert await driver.state.waiting_for_signal("x") == [Listener("later", a.node, ())]

    @async_test
    async def test_signal_with_path_resumes_token_of_that_path(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            items = await driver.start_items(3)
            for each in items:
                await driver.complete(each, GO)
                driver.clock.advance(1)
            assert [each.path for each in await driver.state.waiting_for_signal("x")] == [
                each.path for each in items
            ]
            (second,) = await driver.signal("s", path=items[1].path)
            assert (second.path, second.signal) == (items[1].path, "s")
            assert await driver.signal("t", path=items[1].path) == []
            (first,) = await driver.signal("u")
            assert (first.path, first.signal) == (items[0].path, "u")
            (third,) = await driver.signal("v", path=items[2].path)
            assert third.path == items[2].path

    @async_test
    async def test_stored_signal_is_consumed_only_by_its_path(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            first, second = await driver.start_items(2)
            assert await driver.signal("s", path=second.path) == []
            assert (await driver.complete(first, GO)).emitted == ()
            (resumed,) = (await driver.complete(second, GO)).emitted
            assert (resumed.path, resumed.signal) == (second.path, "s")
            driver.lose_state()
            assert [each.path for each in await driver.state.waiting_for_signal("x")] == [first.path]

    @async_test
    async def test_repeated_signal_resumes_one_token(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            await driver.complete(a, GO)
            driver.clock.advance(1)
            await driver.complete(b, GO)
            signal = await driver.record_signal("s")
            answers = await asyncio.gather(*(driver.state.signal("x", signal) for _ in range(SIGNALLERS)))
            assert _nodes_and_signals([token for each in answers for token in each.emitted]) == [
                (a.node, "s")
            ]
            assert [each.node for each in await driver.state.waiting_for_signal("x")] == [b.node]

    @async_test
    async def test_repeated_stored_signal_is_consumed_once(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            signal = await driver.record_signal("s")
            for _ in range(2):
                assert (await driver.state.signal("x", signal)).emitted == ()
            (resumed,) = (await driver.complete(a, GO)).emitted
            (b,) = (await driver.complete(resumed)).emitted
            assert (await driver.complete(b, GO)).emitted == ()

    @async_test
    async def test_signal_disarms_wait_timer(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.complete(a, Suspend(until=driver.clock.now() + 60_000, signal="go"))
            (resumed,) = await driver.signal("s")
            await driver.complete(resumed)
            driver.clock.advance(120_000)
            assert [each for each in await driver.fire_timers() if each.node == a.node] == []

    @async_test
    async def test_signal_after_timeout_is_stored_for_later_wait(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.complete(a, Suspend(until=driver.clock.now() + 60_000, signal="go"))
            driver.clock.advance(60_000)
            (resumed,) = await driver.fire_timers()
            assert _nodes_and_signals([resumed]) == [(a.node, None)]
            assert await driver.signal("s") == []
            (b,) = (await driver.complete(resumed)).emitted
            assert _nodes_and_signals(list((await driver.complete(b, GO)).emitted)) == [(b.node, "s")]

    @async_test
    async def test_stored_signal_survives_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.signal("s")
            driver.clock.advance(1)
            await driver.signal("t")
            driver.lose_state()
            assert _nodes_and_signals(list((await driver.state.begin("x")).emitted)) == [(a.node, None)]
            (resumed,) = (await driver.complete(a, GO)).emitted
            assert resumed.signal == "s"
            driver.lose_state()
            assert _nodes_and_signals(list((await driver.state.begin("x")).emitted)) == [(a.node, "s")]

    @async_test
    async def test_rebuilt_state_applies_unapplied_signal(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            a = await self._suspend_first(driver)
            await driver.settle()
            await driver.record_signal("s")
            driver.lose_state()
            assert _nodes_and_signals(await driver.fire_timers()) == [(a.node, "s")]

    @async_test
    async def test_consumed_signal_is_not_consumed_again_after_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            await self._suspend_first(driver)
            (resumed,) = await driver.signal("s")
            (b,) = (await driver.complete(resumed)).emitted
            await driver.complete(b, GO)
            driver.lose_state()
            assert (await driver.state.begin("x")).emitted == ()
            assert await driver.state.waiting_for_signal("x") == [Listener("go", b.node, ())]
            assert _nodes_and_signals(await driver.signal("t")) == [(b.node, "t")]

    @async_test
    async def test_wait_order_survives_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            await driver.complete(b, GO)
            driver.clock.advance(5)
            await driver.complete(a, GO)
            driver.lose_state()
            assert [each.node for each in await driver.state.waiting_for_signal("x")] == [b.node, a.node]
            assert _nodes_and_signals(await driver.signal("s")) == [(b.node, "s")]

    @async_test
    async def test_signalled_idle_execution_is_resumed_after_crash(self, tmp_path: Path) -> None:
        """The process that recorded the signal died before or right after it was applied to the state."""
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            for execution in ("unapplied", "applied"):
                (a,) = (await driver.accept(execution)).emitted
                await driver.complete(a, GO, execution)
            await driver.settle()
            clock.advance(10_000_000)
            assert await driver.fire_timers() == []
            await driver.record_signal("s", execution="unapplied")
            await driver.signal("s", execution="applied")
            crash_copy = self.make_crash_copy(tmp_path)
        for folder in (crash_copy, tmp_path):
            async with self.driver(folder, chain(), clock) as driver:
                found = {
                    each.execution: _nodes_and_signals(list(each.emitted))
                    for each in await driver.state.due_timers(10)
                }
                assert found == {"unapplied": [(a.node, "s")], "applied": [(a.node, "s")]}

    @async_test
    async def test_signal_concurrent_with_wait_is_consumed_after_crash(self, tmp_path: Path) -> None:
        """Wait and signal are both recorded; the state has applied only the wait."""
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            (a,) = (await driver.accept()).emitted
            assert await driver.fire_timers() == []
            decision = await driver.record_decision(driver.decision(a, GO))
            await driver.record_signal("s")
            await driver.state.apply("x", [decision])
            await driver.settle()
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.driver(crash_copy, chain(), clock) as driver:
            assert _nodes_and_signals(await driver.fire_timers()) == [(a.node, "s")]

    @async_test
    async def test_signal_concurrent_with_wait_is_consumed(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            decision = await driver.record_decision(driver.decision(a, GO))
            signal = await driver.record_signal("s")
            emitted = [*(await driver.state.apply("x", [decision])).emitted]
            await driver.settle()
            emitted += (await driver.state.signal("x", signal)).emitted
            assert set(_nodes_and_signals([*emitted, *await driver.fire_timers()])) == {(a.node, "s")}
