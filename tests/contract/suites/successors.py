"""Contract of states for applying decisions and claiming their only successor in one step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.state import Applied, Claim
from rune.testing.harness import compiled
from tests.contract.suites.state_driver import StateContractBase, StateDriver, chain
from tests.support.async_test import async_test

LEASE = 7_500
EFFECT = {"effectful": True}


@cache
def forked() -> Plan:
    """in → a → {b, c}, where b and c are effectful."""
    nodes = [
        {"id": "in", "type": "input"},
        {"id": "a", "type": "noop"},
        {"id": "b", "type": "noop", "parameters": EFFECT},
        {"id": "c", "type": "noop", "parameters": EFFECT},
    ]
    edges = [{"src": "in", "dst": "a"}, {"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]
    return compiled({"id": "forked", "nodes": nodes, "edges": edges})


@cache
def limited_chain() -> Plan:
    """in → a → b, with `max_parallel` 1, where b is effectful."""
    nodes = [
        {"id": "in", "type": "input"},
        {"id": "a", "type": "noop"},
        {"id": "b", "type": "noop", "parameters": EFFECT},
    ]
    edges = [{"src": "in", "dst": "a"}, {"src": "a", "dst": "b"}]
    return compiled({"id": "limited", "nodes": nodes, "edges": edges, "settings": {"max_parallel": 1}})


class SuccessorContract(StateContractBase):
    """The state claims the only successor in the step that emits it."""

    async def _advance(self, driver: StateDriver, token: Token, to: str = "b") -> Applied:
        decision = await driver.record_decision(driver.decision(token))
        return await driver.state.apply_and_claim("x", [decision], driver.node(to), "me")

    async def _claimed(self, driver: StateDriver) -> Claim:
        """Complete the first node of a chain and return the claim of the second."""
        (a,) = (await driver.accept()).emitted
        applied = await self._advance(driver, a)
        assert applied.kept is not None
        assert applied.emitted == ()
        return applied.kept.claim

    @async_test
    async def test_successor_is_claimed_by_one_worker(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            claim = await self._claimed(driver)
            assert (claim.verdict, claim.token.node) == ("run", driver.node("b"))
            assert (await driver.state.claim("x", claim.token, "other", leased=True)).verdict == "held"
            assert claim.fence is not None
            driver.clock.advance(LEASE - 1_000)
            assert await driver.state.renew("x", claim.token.node, (), claim.fence)
            driver.clock.advance(LEASE - 1_000)
            assert (await driver.state.claim("x", claim.token, "other", leased=True)).verdict == "held"

    @async_test
    async def test_claimed_successor_of_dead_worker_is_sent_again(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            claim = await self._claimed(driver)
            assert await driver.state.unclaimed_tokens(10) == []
            driver.clock.advance(LEASE + 1)
            assert [token.node for _, token, _ in await driver.state.unclaimed_tokens(10)] == [
                driver.node("b")
            ]
            other = await driver.state.claim("x", claim.token, "other", leased=True)
            assert (other.verdict, other.again) == ("run", True)
            assert claim.fence is not None
            assert other.fence is not None
            assert other.fence > claim.fence
            assert not await driver.state.renew("x", claim.token.node, (), claim.fence)

    @async_test
    async def test_claimed_successor_leads_to_the_next_node(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            claim = await self._claimed(driver)
            (c,) = (await driver.complete(claim.token)).emitted
            assert c.node == driver.node("c")
            assert (await driver.complete(c)).finish is not None

    @async_test
    async def test_repeated_apply_neither_emits_nor_claims_again(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await self._advance(driver, a)
            again = await self._advance(driver, a)
            assert (again.emitted, again.kept) == ((), None)

    @async_test
    async def test_one_of_several_successors_is_not_claimed(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, forked()) as driver:
            (a,) = (await driver.accept()).emitted
            applied = await self._advance(driver, a)
            assert applied.kept is None
            assert sorted(token.node for token in applied.emitted) == [driver.node("b"), driver.node("c")]

    @async_test
    async def test_successor_in_paused_execution_is_not_claimed(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.state.claim("x", a, "me", leased=False)
            await driver.set_paused(1, paused=True)
            applied = await self._advance(driver, a)
            assert (applied.emitted, applied.kept) == ((), None)
            assert [token.node for token in await driver.set_paused(2, paused=False)] == [driver.node("b")]

    @async_test
    async def test_successor_counts_for_limit_of_parallel_nodes(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, limited_chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.state.claim("x", a, "me", leased=False)
            applied = await self._advance(driver, a)
            assert applied.kept is None
            assert await driver.claim_all(applied.emitted, leased=True) == ["run"]
