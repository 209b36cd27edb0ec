"""Contract of states for pauses: no token starts, none is lost, and timeouts are extended."""

from __future__ import annotations

from pathlib import Path

from rune.core.execution.fact import NodeResult, PauseChanged
from rune.core.execution.outcome import Suspend
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.testing.harness import VirtualClock
from tests.contract.suites.state_driver import StateContractBase, chain, joined, timed
from tests.support.async_test import async_test

MINUTE = 60_000


def _nodes(tokens: list[Token]) -> list[int]:
    return [each.node for each in tokens]


class PauseContract(StateContractBase):
    """Pauses and resumes."""

    @async_test
    async def test_pause_parks_tokens_and_resume_emits_them(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            assert await driver.set_paused(1, paused=True) == []
            assert await driver.claim_all([b], leased=True) == ["parked"]
            assert _nodes(await driver.set_paused(2, paused=False)) == [b.node]
            assert await driver.claim_all([b], leased=True) == ["run"]

    @async_test
    async def test_token_of_dead_worker_is_sent_again_after_the_pause(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            assert await driver.claim_all([b], leased=True) == ["run"]
            await driver.set_paused(1, paused=True)
            driver.clock.advance(MINUTE)
            assert await driver.state.unclaimed_tokens(10) == []
            resumed = await driver.set_paused(2, paused=False)
            swept = [token for _, token, _ in await driver.state.unclaimed_tokens(10)]
            assert _nodes([*resumed, *swept]) == [b.node]
            assert await driver.claim_all([b], leased=True) == ["run"]

    @async_test
    async def test_commit_during_pause_parks_emitted_tokens(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            assert await driver.claim_all([a]) == ["run"]
            await driver.set_paused(1, paused=True)
            emitted = (await driver.complete(a)).emitted
            assert await driver.claim_all(emitted) == ["parked"] * len(emitted)
            assert _nodes(await driver.set_paused(2, paused=False)) == [driver.node("b")]

    @async_test
    async def test_pause_state_returns_count_and_flag(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            await driver.advance_to_b()
            assert await driver.state.pause_state("x") == (0, False)
            for number, paused in enumerate((True, False, True), start=1):
                await driver.set_paused(number, paused=paused)
                assert await driver.state.pause_state("x") == (number, paused)
                await driver.settle()
                assert await driver.state.pause_state("x") == (number, paused)
            driver.lose_state()
            assert await driver.state.pause_state("x") == (3, True)

    @async_test
    async def test_repeated_pause_fact_changes_nothing(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.set_paused(1, paused=True)
            await driver.set_paused(2, paused=False)
            assert await driver.claim_all([b], leased=True) == ["run"]
            for fact in (
                PauseChanged(driver.clock.now(), 1, True),
                PauseChanged(driver.clock.now(), 2, False),
            ):
                assert (await driver.state.control("x", fact)).emitted == ()
            assert await driver.state.pause_state("x") == (2, False)

    @async_test
    async def test_wait_ending_during_pause_continues_on_resume(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.complete(b, Suspend(until=driver.clock.now() + MINUTE))
            await driver.set_paused(1, paused=True)
            driver.clock.advance(2 * MINUTE)
            parked = await driver.fire_timers()
            assert await driver.claim_all(parked) == ["parked"] * len(parked)
            (resumed,) = await driver.set_paused(2, paused=False)
            assert (resumed.node, resumed.resumed) == (b.node, True)
            assert await driver.claim_all([resumed]) == ["run"]

    @async_test
    async def test_wait_keeps_due_time_over_pause(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.complete(b, Suspend(until=driver.clock.now() + MINUTE))
            await driver.set_paused(1, paused=True)
            driver.clock.advance(MINUTE // 2)
            assert await driver.set_paused(2, paused=False) == []
            driver.clock.advance(MINUTE // 2 - 1)
            assert await driver.fire_timers() == []
            driver.clock.advance(1)
            assert _nodes(await driver.fire_timers()) == [b.node]

    @async_test
    async def test_signal_during_pause_is_consumed_on_resume(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.complete(b, Suspend(signal="go"))
            await driver.set_paused(1, paused=True)
            parked = await driver.signal("s")
            assert await driver.claim_all(parked) == ["parked"] * len(parked)
            assert await driver.state.waiting_for_signal("x") == []
            (resumed,) = await driver.set_paused(2, paused=False)
            assert (resumed.node, resumed.signal) == (b.node, "s")

    @async_test
    async def test_join_timeout_is_extended_by_pause(self, tmp_path: Path) -> None:
        await self._check_join_timeout(tmp_path, lose=False)

    @async_test
    async def test_join_timeout_is_extended_by_pause_after_state_loss(self, tmp_path: Path) -> None:
        await self._check_join_timeout(tmp_path, lose=True)

    async def _check_join_timeout(self, folder: Path, *, lose: bool) -> None:
        async with self.driver(folder, joined()) as driver:

            def maybe_lose_state() -> None:
                if lose:
                    driver.lose_state()

            a, b = (await driver.accept()).emitted
            await driver.complete(a)
            driver.clock.advance(10_000)
            await driver.set_paused(1, paused=True)
            maybe_lose_state()
            driver.clock.advance(5 * MINUTE)
            timed_out = await driver.fire_timers()
            assert await driver.claim_all(timed_out) == ["done"] * len(timed_out)
            maybe_lose_state()
            assert _nodes(await driver.set_paused(2, paused=False)) == [b.node]
            maybe_lose_state()
            driver.clock.advance(49_999)
            assert driver.node("c") not in _nodes(await driver.fire_timers())
            driver.clock.advance(1)
            assert _nodes(await driver.fire_timers()) == [driver.node("c")]

    @async_test
    async def test_execution_timeout_is_extended_by_pause(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, timed()) as driver:
            (a,) = (await driver.accept()).emitted
            driver.clock.advance(10_000)
            await driver.set_paused(1, paused=True)
            driver.clock.advance(5 * MINUTE)
            assert [each.finish for each in await driver.state.due_timers(10) if each.finish] == []
            assert _nodes(await driver.set_paused(2, paused=False)) == [a.node]
            driver.clock.advance(49_999)
            assert [each.finish for each in await driver.state.due_timers(10) if each.finish] == []
            driver.clock.advance(1)
            (finish,) = [each.finish for each in await driver.state.due_timers(10) if each.finish]
            assert finish.status == "failed"

    @async_test
    async def test_initial_facts_are_not_rerun_after_loss_or_pause(self, tmp_path: Path) -> None:
        """Results taken over from another execution are not run again."""
        async with self.driver(tmp_path, chain()) as driver:
            kept = NodeResult(driver.node("a"), (), driver.clock.now(), "ok", value=Inline(b"1"), kept=True)
            b = Token(driver.node("b"))
            assert _nodes(list((await driver.accept(facts=[kept])).emitted)) == [b.node]
            assert await driver.claim_all([Token(driver.node("a"))]) == ["done"]
            driver.lose_state()
            assert _nodes(list((await driver.state.begin("x")).emitted)) == [b.node]
            await driver.set_paused(1, paused=True)
            assert _nodes(await driver.set_paused(2, paused=False)) == [b.node]

    @async_test
    async def test_pause_survives_state_loss(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            await driver.set_paused(1, paused=True)
        async with self.driver(tmp_path, chain(), clock) as driver:
            assert await driver.claim_all([b], leased=True) == ["parked"]
            driver.lose_state()
            assert (await driver.state.begin("x")).emitted == ()
            clock.advance(10 * MINUTE)
            assert await driver.fire_timers() == []
            assert _nodes(await driver.set_paused(2, paused=False)) == [b.node]

    @async_test
    async def test_unapplied_resume_is_found_after_crash(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            await driver.set_paused(1, paused=True)
            await driver.settle()
            clock.advance(10 * MINUTE)
            await driver.journal.record("x", [PauseChanged(clock.now(), 2, False)])
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.driver(crash_copy, chain(), clock) as driver:
            assert _nodes(await driver.fire_timers()) == [b.node]

    @async_test
    async def test_resume_during_commit_is_found_after_crash(self, tmp_path: Path) -> None:
        """The last running node completes, and the resume is recorded before the state parks its successors."""
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            (a,) = (await driver.accept()).emitted
            assert await driver.claim_all([a]) == ["run"]
            await driver.set_paused(1, paused=True)
            decision = await driver.record_decision(driver.decision(a))
            await driver.journal.record("x", [PauseChanged(clock.now(), 2, False)])
            await driver.state.apply("x", [decision])
            await driver.settle()
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.driver(crash_copy, chain(), clock) as driver:
            assert _nodes(await driver.fire_timers()) == [driver.node("b")]
