"""Contract of execution states: operations are atomic and the state can be rebuilt from the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Suspend
from rune.core.execution.token import START, Token, TokenPurpose
from rune.ports.journal import UnknownExecutionError
from rune.testing.harness import VirtualClock
from tests.contract.suites.chunks import ChunkContract
from tests.contract.suites.concurrency import ConcurrencyContract
from tests.contract.suites.pauses import PauseContract
from tests.contract.suites.signals import SignalContract
from tests.contract.suites.state_driver import chain, joined
from tests.contract.suites.successors import SuccessorContract
from tests.support.async_test import async_test

LEASE = 7_500
CLAIMS = 50
RETRY_DELAYS = (5_000, 25_000, 125_000)


class StateContract(SignalContract, PauseContract, ConcurrencyContract, SuccessorContract, ChunkContract):
    """Subclasses open journal and state in a folder; opened again there, the state is rebuilt."""

    @async_test
    async def test_begin_emits_successors_of_trigger(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            applied = await driver.accept()
            assert {token.node for token in applied.emitted} == {driver.node("a"), driver.node("b")}
            assert (await driver.state.begin("x")).emitted == ()

    @async_test
    async def test_unknown_execution_is_refused(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            with pytest.raises(UnknownExecutionError) as refused:
                await driver.state.begin("unknown")
            assert refused.value.execution == "unknown"

    @async_test
    async def test_claim_of_completed_token_returns_done(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            claim = await driver.state.claim("x", a, "me", leased=False)
            assert (claim.verdict, claim.fence, claim.again, claim.token) == ("run", None, False, a)
            (b,) = (await driver.complete(a)).emitted
            assert b.node == driver.node("b")
            assert (await driver.state.claim("x", a, "me", leased=False)).verdict == "done"

    @async_test
    async def test_claim_of_unsent_token_is_rejected(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            await driver.accept()
            claim = await driver.state.claim("x", Token(driver.node("c")), "me", leased=False)
            assert claim.verdict not in ("run", "cancelled")

    @async_test
    async def test_claim_corrects_stale_token(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            wrong = replace(b, payload=START, at=b.at + 1)
            assert (await driver.state.claim("x", wrong, "me", leased=True)).token == b

    @async_test
    async def test_concurrent_claims_grant_one_lease(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            claims = await asyncio.gather(
                *(driver.state.claim("x", b, str(number), leased=True) for number in range(CLAIMS))
            )
            verdicts = [each.verdict for each in claims]
            assert (verdicts.count("run"), verdicts.count("held")) == (1, CLAIMS - 1)
            assert [each.fence is not None for each in claims] == [each == "run" for each in verdicts]

    @async_test
    async def test_renewed_lease_stays_held(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            mine = await driver.state.claim("x", b, "me", leased=True)
            assert mine.fence is not None
            for _ in range(5):
                driver.clock.advance(LEASE - 1_000)
                assert await driver.state.renew("x", b.node, b.path, mine.fence)
                assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "held"

    @async_test
    async def test_expired_lease_is_claimed_with_higher_fence(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            mine = await driver.state.claim("x", b, "me", leased=True)
            driver.clock.advance(LEASE + 1)
            other = await driver.state.claim("x", b, "other", leased=True)
            assert (other.verdict, other.again) == ("run", True)
            assert mine.fence is not None
            assert other.fence is not None
            assert other.fence > mine.fence
            assert not await driver.state.renew("x", b.node, b.path, mine.fence)
            assert await driver.state.renew("x", b.node, b.path, other.fence)

    @async_test
    async def test_expired_lease_cannot_be_renewed(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            mine = await driver.state.claim("x", b, "me", leased=True)
            assert mine.fence is not None
            driver.clock.advance(LEASE + 1)
            assert not await driver.state.renew("x", b.node, b.path, mine.fence)

    @async_test
    async def test_unclaimed_tokens_lists_expired_leases(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
            assert await driver.state.unclaimed_tokens(10) == []
            driver.clock.advance(LEASE + 1)
            assert [(each, token.node) for each, token, _ in await driver.state.unclaimed_tokens(10)] == [
                ("x", b.node)
            ]

    @async_test
    async def test_engine_errors_are_counted_across_workers_and_delay_claims(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            for number, delay in enumerate(RETRY_DELAYS, 1):
                owner = f"worker {number}"
                assert (await driver.state.claim("x", b, owner, leased=True)).verdict == "run"
                assert await driver.state.requeue("x", b, owner, RETRY_DELAYS) == number
                driver.clock.advance(delay - 1)
                assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "held"
                assert await driver.state.unclaimed_tokens(10) == [], "sent before the delay was over"
                driver.clock.advance(1)
            last = await driver.state.claim("x", b, "last", leased=True)
            assert (last.verdict, last.given_back) == ("run", len(RETRY_DELAYS))
            assert await driver.state.requeue("x", b, "last", RETRY_DELAYS) == len(RETRY_DELAYS) + 1

    @async_test
    async def test_engine_error_of_pure_token_delays_claims(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=False)
            assert await driver.state.requeue("x", b, "me", RETRY_DELAYS) == 1
            assert (await driver.state.claim("x", b, "other", leased=False)).verdict == "held"
            driver.clock.advance(RETRY_DELAYS[0])
            assert (await driver.state.claim("x", b, "other", leased=False)).verdict == "run"

    @async_test
    async def test_lost_message_of_retried_token_is_sent_again(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
            await driver.state.requeue("x", b, "me", RETRY_DELAYS)
            driver.clock.advance(RETRY_DELAYS[0] + LEASE + 1)
            assert [token.node for _, token, _ in await driver.state.unclaimed_tokens(10)] == [b.node]

    @async_test
    async def test_token_given_back_is_claimed_at_once(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
            assert await driver.state.requeue("x", b, "me") == 0
            other = await driver.state.claim("x", b, "other", leased=True)
            assert (other.verdict, other.given_back) == ("run", 1)

    @async_test
    async def test_worker_gives_back_neither_tokens_of_others_nor_done_ones(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
            assert await driver.state.requeue("x", b, "other", RETRY_DELAYS) == 0
            assert (await driver.state.claim("x", b, "other", leased=True)).verdict == "held"
            await driver.complete(b)
            assert await driver.state.requeue("x", b, "me", RETRY_DELAYS) == 0

    @async_test
    async def test_claim_after_unapplied_result_reports_earlier_claim(self, tmp_path: Path) -> None:
        """The lease holder recorded its result and died: the next claim must check the journal."""
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
            await driver.record_decision(driver.decision(b))
            driver.clock.advance(LEASE + 1)
            again = await driver.state.claim("x", b, "other", leased=True)
            assert again.verdict == "done" or again.again

    @async_test
    async def test_second_apply_changes_nothing(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            decision = await driver.record_decision(driver.decision(a))
            first = await driver.state.apply("x", [decision])
            second = await driver.state.apply("x", [decision])
            assert len(first.emitted) == 1
            assert (second.emitted, second.finish) == ((), None)

    @async_test
    async def test_apply_includes_facts_missing_from_state(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept()).emitted
            await driver.record_decision(driver.decision(a))
            b = Token(driver.node("b"))
            applied = await driver.complete(b)
            assert [token.node for token in applied.emitted] == [driver.node("c")]
            last = await driver.complete(applied.emitted[0])
            assert last.finish is not None
            assert last.finish.status == "completed"

    @async_test
    async def test_rebuilt_state_does_not_rerun_recorded_tokens(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            await driver.record_decision(driver.decision(b))
        async with self.driver(tmp_path, chain(), clock) as driver:
            applied = await driver.state.begin("x")
            assert [token.node for token in applied.emitted] == [driver.node("c")]
            assert (await driver.state.claim("x", b, "me", leased=True)).verdict == "done"

    @async_test
    async def test_running_token_is_emitted_again_after_state_loss(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            await driver.state.claim("x", b, "me", leased=True)
        async with self.driver(tmp_path, chain(), clock) as driver:
            assert [token.node for token in (await driver.state.begin("x")).emitted] == [b.node]

    @async_test
    async def test_join_opens_once_despite_duplicates(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            assert (await driver.complete(a)).emitted == ()
            assert (await driver.complete(a)).emitted == ()
            assert [token.node for token in (await driver.complete(b)).emitted] == [driver.node("c")]
            assert (await driver.complete(b)).emitted == ()

    @async_test
    async def test_explain_lists_missing_inputs_of_join(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, _ = (await driver.accept()).emitted
            await driver.complete(a)
            (waiting,) = [each for each in await driver.state.explain("x") if each.missing]
            assert (waiting.node, len(waiting.arrived), len(waiting.missing)) == ("c", 1, 1)

    @async_test
    async def test_timer_fires_once_when_due(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            due = driver.clock.now() + 60_000
            assert (await driver.complete(b, Suspend(until=due))).emitted == ()
            next_due = await driver.state.next_due()
            assert next_due is not None
            assert next_due <= due, "next_due may be early but never late"
            driver.clock.advance(59_999)
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []
            driver.clock.advance(1)
            fired = [each for each in await driver.state.due_timers(10) if each.emitted]
            assert [(each.execution, each.emitted[0].node) for each in fired] == [("x", b.node)]
            assert fired[0].emitted[0].resumed
            driver.clock.advance(60_000)
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []

    @async_test
    async def test_armed_timers_survive_state_loss(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            due = clock.now() + 60_000
            await driver.complete(b, Suspend(until=due))
        async with self.driver(tmp_path, chain(), clock) as driver:
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []
            clock.advance(60_000)
            fired = [each for each in await driver.state.due_timers(10) if each.emitted]
            assert [each.emitted[0].node for each in fired] == [b.node]
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []

    @async_test
    async def test_join_timeout_starts_at_first_arrival(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, _ = (await driver.accept()).emitted
            driver.clock.advance(30_000)
            await driver.complete(a)
            driver.clock.advance(59_999)
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []
            driver.clock.advance(1)
            (fired,) = [each for each in await driver.state.due_timers(10) if each.emitted]
            assert [token.node for token in fired.emitted] == [driver.node("c")]

    @async_test
    async def test_join_expires_only_when_its_timeout_is_over(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, _ = (await driver.accept()).emitted
            early = Token(driver.node("c"), fate=TokenPurpose.EXPIRE)
            driver.clock.advance(120_000)
            assert (await driver.state.claim("x", early, "w1", leased=False)).verdict == "done"
            await driver.complete(a)
            driver.clock.advance(59_999)
            assert (await driver.state.claim("x", early, "w1", leased=False)).verdict == "done"
            driver.clock.advance(1)
            assert (await driver.state.claim("x", early, "w1", leased=False)).verdict == "run"

    @async_test
    async def test_disarmed_timer_never_fires(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, joined()) as driver:
            a, b = (await driver.accept()).emitted
            await driver.complete(a)
            await driver.complete(b)
            driver.clock.advance(120_000)
            assert [each for each in await driver.state.due_timers(10) if each.emitted] == []

    @async_test
    async def test_due_timers_respects_limit(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            due = driver.clock.now() + 1_000
            for number in range(10):
                (a,) = (await driver.accept(f"x{number}")).emitted
                (b,) = (await driver.complete(a, execution=f"x{number}")).emitted
                await driver.complete(b, Suspend(until=due), f"x{number}")
            driver.clock.advance(1_000)
            seen: list[str] = []
            while found := await driver.state.due_timers(4):
                assert len(found) <= 4
                seen += [each.execution for each in found if each.emitted]
            assert sorted(seen) == [f"x{number}" for number in range(10)]

    @async_test
    async def test_ended_execution_rejects_claims_and_decisions(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            b = await driver.advance_to_b()
            end = ExecutionEnded(driver.clock.now(), "cancelled")
            await driver.journal.record("x", [end])
            await driver.state.end("x", end)
            claim = await driver.state.claim("x", b, "me", leased=True)
            assert claim.verdict not in ("run", "cancelled")
            late = await driver.state.apply("x", [driver.decision(b)])
            assert (late.emitted, late.finish) == ((), None)
            driver.clock.advance(10 * LEASE)
            assert [each for each in await driver.state.due_timers(10) if each.emitted or each.finish] == []

    @async_test
    async def test_unrecorded_finish_is_emitted_again_by_timer(self, tmp_path: Path) -> None:
        """The last decision arms a timer, so the end is recorded even if the worker dies."""
        clock = VirtualClock()
        async with self.driver(tmp_path, chain(), clock) as driver:
            b = await driver.advance_to_b()
            (c,) = (await driver.complete(b)).emitted
            last = await driver.complete(c)
            assert last.finish is not None
            clock.advance(10 * LEASE)
            assert any(each.finish is not None for each in await driver.state.due_timers(10))
        async with self.driver(tmp_path, chain(), clock) as driver:
            clock.advance(10 * LEASE)
            assert any(each.finish is not None for each in await driver.state.due_timers(10))

    @async_test
    async def test_executions_are_independent(self, tmp_path: Path) -> None:
        async with self.driver(tmp_path, chain()) as driver:
            (a,) = (await driver.accept("x")).emitted
            await driver.accept("y")
            await driver.complete(a, execution="x")
            assert (await driver.state.claim("y", a, "me", leased=False)).verdict == "run"
