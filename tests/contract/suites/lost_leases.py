"""Contract of leases in states that can lose their data while workers run: a holder keeps its token."""

from __future__ import annotations

from pathlib import Path

from rune.core.execution.fact import AttemptFailed, ExecutionEnded
from rune.core.execution.outcome import Error
from rune.core.execution.token import Token
from rune.ports.state import LEASE_MS, Fence
from tests.contract.suites.state_driver import StateContractBase, StateDriver, chain
from tests.support.async_test import async_test


async def _claimed(driver: StateDriver) -> tuple[Token, Fence]:
    """Return a token with an effect that a worker has claimed, and its lease."""
    b = await driver.advance_to_b()
    claim = await driver.state.claim("x", b, "me", leased=True)
    assert claim.fence is not None
    await driver.journal.count_claim("x", b.node, b.path, claim.fence, claim.now, durable=True)
    return b, claim.fence


class LostLeaseContract(StateContractBase):
    @async_test
    async def test_holder_keeps_lease_after_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b, fence = await _claimed(driver)
            driver.lose_state()
            assert await driver.state.renew("x", b.node, b.path, fence)
            driver.clock.advance(LEASE_MS - 1_000)
            assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "held"
            assert await driver.state.renew("x", b.node, b.path, fence)
            assert await driver.state.unclaimed_tokens(10) == []
            (c,) = (await driver.complete(b)).emitted
            assert c.node == driver.node("c")

    @async_test
    async def test_token_is_not_handed_out_before_its_holder_can_renew(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b, fence = await _claimed(driver)
            driver.lose_state()
            assert (await driver.state.begin("x")).emitted == ()
            assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "held"
            assert await driver.state.renew("x", b.node, b.path, fence)

    @async_test
    async def test_lease_without_holder_ends_after_state_loss(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b, fence = await _claimed(driver)
            driver.lose_state()
            await driver.state.begin("x")
            driver.clock.advance(LEASE_MS + 2)
            assert [token.node for _, token, _ in await driver.state.unclaimed_tokens(10)] == [b.node]
            assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "run"
            assert not await driver.state.renew("x", b.node, b.path, fence)

    @async_test
    async def test_lease_of_failed_attempt_is_not_granted_again(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b, fence = await _claimed(driver)
            driver.clock.advance(1)
            failed = AttemptFailed(b.node, b.path, driver.clock.now(), 1, Error("X", "x"))
            await driver.journal.record("x", [failed])
            driver.lose_state()
            assert not await driver.state.renew("x", b.node, b.path, fence)

    @async_test
    async def test_lease_of_ended_execution_is_not_granted_again(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b, fence = await _claimed(driver)
            end = ExecutionEnded(driver.clock.now(), "cancelled")
            await driver.journal.record("x", [end])
            driver.lose_state()
            assert not await driver.state.renew("x", b.node, b.path, fence)
