"""Contract of states for `max_parallel` and priorities."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import FanOut, Suspend
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Token
from rune.ports.state import Applied
from tests.contract.suites.state_driver import StateContractBase, StateDriver, chain, fan, limited
from tests.support.async_test import async_test

LEASE = 7_500
HIGH_PRIORITY = 9


class _Workers:
    """Claims emitted tokens, and completes the oldest running one when none is left to claim."""

    def __init__(self, driver: StateDriver, *, leased: bool = False) -> None:
        self._driver = driver
        self._leased = leased
        self.running: deque[Token] = deque()
        self.max_running = 0

    async def work(self, tokens: Iterable[Token]) -> FinishExecution | None:
        """Run until no token is left; return the finish if there was one."""
        waiting = deque(tokens)
        finish: FinishExecution | None = None
        while waiting or self.running:
            if waiting:
                await self.claim(waiting.popleft())
                continue
            applied = await self.complete_one()
            waiting += applied.emitted
            finish = finish or applied.finish
        return finish

    async def claim(self, token: Token) -> str:
        verdict = (await self._driver.state.claim("x", token, "me", leased=self._leased)).verdict
        if verdict == "run":
            self.running.append(token)
            self.max_running = max(self.max_running, len(self.running))
        return verdict

    async def complete_one(self) -> Applied:
        return await self._driver.complete(self.running.popleft())


class ConcurrencyContract(StateContractBase):
    """Limits of running tokens per execution, and priorities."""

    @async_test
    async def test_token_over_limit_is_held_back_until_one_completes(self, tmp_path: Path) -> None:
        for leased in (False, True):
            async with self.driver(tmp_path / str(leased), limited()) as driver:
                a, b, *rest = (await driver.accept()).emitted
                held = ["held back"] * len(rest)
                assert await driver.claim_all([a, b, *rest], leased=leased) == ["run", "run", *held]
                (next_token,) = (await driver.complete(a)).emitted
                assert next_token in rest
                assert await driver.claim_all([next_token], leased=leased) == ["run"]

    @async_test
    async def test_free_slot_is_granted_to_next_claim(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            a, b, c, *_ = (await driver.accept()).emitted
            await driver.claim_all([a, b])
            assert (await driver.complete(a)).emitted == ()
            assert await driver.claim_all([c]) == ["run"]

    @async_test
    async def test_limit_is_never_exceeded_and_all_tokens_run(self, tmp_path: Path) -> None:
        for leased in (False, True):
            async with self.driver(tmp_path / str(leased), limited()) as driver:
                workers = _Workers(driver, leased=leased)
                finish = await workers.work((await driver.accept()).emitted)
                assert (finish, workers.max_running) == (FinishExecution("completed"), 2)

    @async_test
    async def test_fan_out_items_share_limit(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan(3)) as driver:
            (split,) = (await driver.accept()).emitted
            await driver.claim_all([split])
            items = (await driver.complete(split, FanOut(10, Inline(b"[]")))).emitted
            workers = _Workers(driver)
            finish = await workers.work(items)
            assert (len(items), finish, workers.max_running) == (10, FinishExecution("completed"), 3)

    @async_test
    async def test_repeated_claims_of_held_back_token_take_no_slot(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            tokens = (await driver.accept()).emitted
            workers = _Workers(driver, leased=True)
            for token in tokens:
                for _ in range(3):
                    await workers.claim(token)
            assert len(workers.running) == 2
            assert await workers.work(()) == FinishExecution("completed")
            assert workers.max_running == 2

    @async_test
    async def test_suspended_token_takes_no_slot(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            a, b, c, *_ = (await driver.accept()).emitted
            assert await driver.claim_all([a, b, c]) == ["run", "run", "held back"]
            (admitted,) = (await driver.complete(a, Suspend(signal="go"))).emitted
            assert admitted == c
            assert await driver.claim_all([c]) == ["run"]
            (resumed,) = await driver.signal("s")
            assert await driver.claim_all([resumed]) == ["held back"]
            assert resumed in (await driver.complete(b)).emitted
            assert await driver.claim_all([resumed]) == ["run"]

    @async_test
    async def test_expired_lease_is_reclaimed_at_limit(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            tokens = (await driver.accept()).emitted
            a, b, c, *_ = tokens
            await driver.confirm(tokens)
            assert await driver.claim_all([a, b, c], leased=True) == ["run", "run", "held back"]
            driver.clock.advance(LEASE + 1)
            assert {token.node for _, token, _ in await driver.state.unclaimed_tokens(10)} == {a.node, b.node}
            assert await driver.claim_all([a, c], leased=True) == ["run", "held back"]

    @async_test
    async def test_held_back_tokens_survive_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            a, *rest = (await driver.accept()).emitted
            await driver.claim_all([a, *rest])
            await driver.complete(a)
            driver.lose_state()
            emitted = (await driver.state.begin("x")).emitted
            assert {each.node for each in emitted} == {each.node for each in rest}
            workers = _Workers(driver)
            assert await workers.work(emitted) == FinishExecution("completed")
            assert workers.max_running == 2

    @async_test
    async def test_held_back_tokens_are_emitted_after_pause(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            tokens = (await driver.accept()).emitted
            workers = _Workers(driver)
            for token in tokens:
                await workers.claim(token)
            await driver.set_paused(1, paused=True)
            for _ in range(2):
                for token in (await workers.complete_one()).emitted:
                    assert await workers.claim(token) == "parked"
            resumed = await driver.set_paused(2, paused=False)
            assert {each.node for each in resumed} == {each.node for each in tokens[2:]}
            assert await workers.work(resumed) == FinishExecution("completed")
            assert workers.max_running == 2

    @async_test
    async def test_limit_counts_per_execution(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited()) as driver:
            await driver.claim_all((await driver.accept()).emitted)
            other, *_ = (await driver.accept("y")).emitted
            assert (await driver.state.claim("y", other, "me", leased=False)).verdict == "run"

    @async_test
    async def test_due_timer_contains_priority(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            due = driver.clock.now() + 60_000
            for execution, priority in (("x", HIGH_PRIORITY), ("y", 5)):
                (a,) = (await driver.accept(execution, priority=priority)).emitted
                await driver.complete(a, Suspend(until=due), execution)
            await driver.settle()
            driver.clock.advance(60_000)
            fired = {
                each.execution: each.priority for each in await driver.state.due_timers(10) if each.emitted
            }
            assert fired == {"x": HIGH_PRIORITY, "y": 5}

    @async_test
    async def test_priority_survives_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            await driver.accept(priority=HIGH_PRIORITY)
            driver.lose_state()
            (found,) = [each for each in await driver.state.due_timers(10) if each.emitted]
            assert (found.execution, found.priority) == ("x", HIGH_PRIORITY)

    @async_test
    async def test_unclaimed_tokens_contain_priority(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            for execution, priority in (("x", HIGH_PRIORITY), ("y", 5)):
                (a,) = (await driver.accept(execution, priority=priority)).emitted
                await driver.state.claim(execution, a, "me", leased=True)
            driver.clock.advance(LEASE + 1)
            found = {
                execution: priority for execution, _, priority in await driver.state.unclaimed_tokens(10)
            }
            assert found == {"x": HIGH_PRIORITY, "y": 5}
