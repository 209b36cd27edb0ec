"""Contract of states for claiming and applying several items of a fan-out together."""

from __future__ import annotations

from pathlib import Path

from rune.core.execution.decision import Decision
from rune.core.execution.token import Token
from tests.contract.suites.state_driver import StateContractBase, StateDriver, fan
from tests.support.async_test import async_test

ITEMS = 70
"""More than a state applies in one step."""


class ChunkContract(StateContractBase):
    """Each item keeps its own claim and counts once."""

    async def _claims(self, driver: StateDriver, tokens: list[Token]) -> list[tuple[str, bool]]:
        claims = await driver.state.claim_all("x", tokens, "me")
        assert [claim.token.key for claim in claims] == [token.key for token in tokens]
        return [(claim.verdict, claim.fence is not None) for claim in claims]

    async def _run(self, driver: StateDriver, token: Token) -> list[Decision]:
        return [await driver.record_decision(driver.decision(token))]

    @async_test
    async def test_items_are_claimed_together_without_leases(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            tokens = await driver.start_items(ITEMS)
            assert await self._claims(driver, tokens) == [("run", False)] * ITEMS

    @async_test
    async def test_claim_of_claimed_and_done_items_tells_them_apart(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            done, claimed, free, other = (await driver.start_items(4))[:4]
            await driver.state.claim("x", claimed, "other", leased=False)
            await driver.complete(done)
            found = await self._claims(driver, [done, claimed, free, other])
            assert found == [("done", False), ("run", True), ("run", False), ("run", False)]

    @async_test
    async def test_applied_items_open_the_aggregator_once(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            tokens = await driver.start_items(ITEMS)
            await driver.state.claim_all("x", tokens, "me")
            runs = [await self._run(driver, each) for each in tokens]
            applied = await driver.state.apply_all("x", runs)
            assert [token.node for token in applied.emitted] == [driver.node("g")]
            again = await driver.state.apply_all("x", runs)
            assert (again.emitted, again.finish) == ((), None)
            assert (await driver.complete(applied.emitted[0])).finish is not None

    @async_test
    async def test_item_in_two_chunks_is_counted_once(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            first, second, third = await driver.start_items(3)
            runs = [await self._run(driver, each) for each in (first, second)]
            assert (await driver.state.apply_all("x", runs)).emitted == ()
            assert (await driver.state.apply_all("x", [runs[1], runs[0]])).emitted == ()
            applied = await driver.state.apply_all("x", [runs[1], await self._run(driver, third)])
            assert [token.node for token in applied.emitted] == [driver.node("g")]

    @async_test
    async def test_items_of_lost_state_are_applied_after_it_is_rebuilt(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            tokens = await driver.start_items(3)
            runs = [await self._run(driver, each) for each in tokens]
            driver.lose_state()
            emitted = (await driver.state.apply_all("x", runs)).emitted
            assert [token.node for token in emitted] == [driver.node("g")]

    @async_test
    async def test_items_of_paused_execution_are_parked(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, fan()) as driver:
            tokens = await driver.start_items(3)
            await driver.set_paused(1, paused=True)
            assert await self._claims(driver, tokens) == [("parked", False)] * 3
            assert len(await driver.set_paused(2, paused=False)) == 3
