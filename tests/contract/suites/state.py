"""What every state promises: each verb is one atomic act, and all of it can be folded from the journal again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Suspend
from rune.core.execution.token import START, Token
from rune.ports.state import Applied
from rune.testing.clock import VirtualClock
from tests.contract.suites.crowding import CrowdContract
from tests.contract.suites.hearing import SignalContract
from tests.contract.suites.pausing import PauseContract
from tests.contract.suites.scenario import scenario
from tests.contract.suites.world import World, chain, joined

LEASE = 9_000
CLAIMANTS = 50


class StateContract(SignalContract, PauseContract, CrowdContract):
    """Subclass it and open journal and state in a folder with this clock; opened again there, the state is folded."""

    @scenario
    async def test_beginning_sends_what_stands_behind_the_trigger(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            applied = await world.accept()
            assert {token.node for token in applied.emitted} == {world.node("a"), world.node("b")}
            assert (await world.state.begin("x")).emitted == ()

    @scenario
    async def test_a_token_is_claimed_run_and_then_done(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            claim = await world.state.claim("x", a, "me", leased=False)
            assert (claim.verdict, claim.fence, claim.again, claim.token) == ("run", None, False, a)
            (b,) = (await world.done(a)).emitted
            assert b.node == world.node("b")
            assert (await world.state.claim("x", a, "me", leased=False)).verdict == "done"

    @scenario
    async def test_a_token_that_was_never_sent_is_not_run(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            await world.accept()
            claim = await world.state.claim("x", Token(world.node("c")), "me", leased=False)
            assert claim.verdict not in ("run", "cancelled")

    @scenario
    async def test_a_hint_that_is_wrong_about_its_token_is_set_right(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            wrong = replace(b, payload=START, at=b.at + 1)
            assert (await world.state.claim("x", wrong, "me", leased=True)).token == b

    @scenario
    async def test_of_many_claimants_one_gets_the_lease(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            claims = await asyncio.gather(
                *(world.state.claim("x", b, str(number), leased=True) for number in range(CLAIMANTS))
            )
            verdicts = [each.verdict for each in claims]
            assert (verdicts.count("run"), verdicts.count("held")) == (1, CLAIMANTS - 1)
            assert [each.fence is not None for each in claims] == [each == "run" for each in verdicts]

    async def _at_b(self, world: World) -> Applied:
        (a,) = (await world.accept()).emitted
        return await world.done(a)

    @scenario
    async def test_a_renewed_lease_holds_on(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            mine = await world.state.claim("x", b, "me", leased=True)
            assert mine.fence is not None
            for _ in range(5):
                world.clock.advance(LEASE - 1_000)
                assert await world.state.renew("x", b.node, b.path, mine.fence)
                assert (await world.state.claim("x", b, "other", leased=True)).verdict == "held"

    @scenario
    async def test_a_lost_lease_is_taken_over_with_a_higher_fence(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            mine = await world.state.claim("x", b, "me", leased=True)
            world.clock.advance(LEASE + 1)
            theirs = await world.state.claim("x", b, "other", leased=True)
            assert (theirs.verdict, theirs.again) == ("run", True)
            assert mine.fence is not None
            assert theirs.fence is not None
            assert theirs.fence > mine.fence
            assert not await world.state.renew("x", b.node, b.path, mine.fence)
            assert await world.state.renew("x", b.node, b.path, theirs.fence)

    @scenario
    async def test_a_lease_that_ran_out_is_not_renewed(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            mine = await world.state.claim("x", b, "me", leased=True)
            assert mine.fence is not None
            world.clock.advance(LEASE + 1)
            assert not await world.state.renew("x", b.node, b.path, mine.fence)

    @scenario
    async def test_the_sweeper_is_given_what_nobody_holds(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            await world.state.claim("x", b, "me", leased=True)
            assert await world.state.unclaimed_tokens(10) == []
            world.clock.advance(LEASE + 1)
            assert [(each, token.node) for each, token, _ in await world.state.unclaimed_tokens(10)] == [
                ("x", b.node)
            ]

    @scenario
    async def test_a_claim_behind_the_journal_says_that_it_was_claimed_before(self, folder: Path) -> None:
        """The holder wrote its row and died: whoever comes next is told to look."""
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            await world.state.claim("x", b, "me", leased=True)
            await world.journaled(world.decision(b))
            world.clock.advance(LEASE + 1)
            again = await world.state.claim("x", b, "other", leased=True)
            assert again.verdict == "done" or again.again

    @scenario
    async def test_applying_twice_changes_nothing(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            decision = await world.journaled(world.decision(a))
            first = await world.state.apply("x", [decision])
            second = await world.state.apply("x", [decision])
            assert len(first.emitted) == 1
            assert (second.emitted, second.finish) == ((), None)

    @scenario
    async def test_a_decision_the_state_has_never_heard_of_is_folded_in(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            await world.journaled(world.decision(a))
            b = Token(world.node("b"))
            applied = await world.done(b)
            assert [token.node for token in applied.emitted] == [world.node("c")]
            last = await world.done(applied.emitted[0])
            assert last.finish is not None
            assert last.finish.status == "completed"

    @scenario
    async def test_a_lost_state_is_folded_and_nothing_with_a_row_runs_again(self, folder: Path) -> None:
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (b,) = (await self._at_b(world)).emitted
            await world.journaled(world.decision(b))
        async with self.world(folder, chain(), clock) as world:
            applied = await world.state.begin("x")
            assert [token.node for token in applied.emitted] == [world.node("c")]
            assert (await world.state.claim("x", b, "me", leased=True)).verdict == "done"

    @scenario
    async def test_a_running_token_is_sent_again_after_a_loss(self, folder: Path) -> None:
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (b,) = (await self._at_b(world)).emitted
            await world.state.claim("x", b, "me", leased=True)
        async with self.world(folder, chain(), clock) as world:
            assert [token.node for token in (await world.state.begin("x")).emitted] == [b.node]

    @scenario
    async def test_a_join_opens_once_whatever_comes_again(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            assert (await world.done(a)).emitted == ()
            assert (await world.done(a)).emitted == ()
            assert [token.node for token in (await world.done(b)).emitted] == [world.node("c")]
            assert (await world.done(b)).emitted == ()

    @scenario
    async def test_whoever_waits_is_explained(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, _ = (await world.accept()).emitted
            await world.done(a)
            (waiting,) = [each for each in await world.state.explain("x") if each.missing]
            assert (waiting.node, len(waiting.arrived), len(waiting.missing)) == ("c", 1, 1)

    @scenario
    async def test_an_early_timer_does_not_fire_and_a_due_one_fires_once(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            due = world.clock.now() + 60_000
            assert (await world.done(b, Suspend(until=due))).emitted == ()
            asked = await world.state.next_due()
            assert asked is not None
            assert asked <= due, "a scheduler that looks early looks again; one that looks late is late"
            world.clock.advance(59_999)
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []
            world.clock.advance(1)
            fired = [each for each in await world.state.due_timers(10) if each.emitted]
            assert [(each.execution, each.emitted[0].node) for each in fired] == [("x", b.node)]
            assert fired[0].emitted[0].resumed
            world.clock.advance(60_000)
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []

    @scenario
    async def test_armed_timers_survive_a_loss(self, folder: Path) -> None:
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (b,) = (await self._at_b(world)).emitted
            due = clock.now() + 60_000
            await world.done(b, Suspend(until=due))
        async with self.world(folder, chain(), clock) as world:
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []
            clock.advance(60_000)
            fired = [each for each in await world.state.due_timers(10) if each.emitted]
            assert [each.emitted[0].node for each in fired] == [b.node]
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []

    @scenario
    async def test_the_timeout_of_a_join_counts_from_its_first_arrival(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, _ = (await world.accept()).emitted
            world.clock.advance(30_000)
            await world.done(a)
            world.clock.advance(59_999)
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []
            world.clock.advance(1)
            (fired,) = [each for each in await world.state.due_timers(10) if each.emitted]
            assert [token.node for token in fired.emitted] == [world.node("c")]

    @scenario
    async def test_a_disarmed_timer_never_fires(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            await world.done(a)
            await world.done(b)
            world.clock.advance(120_000)
            assert [each for each in await world.state.due_timers(10) if each.emitted] == []

    @scenario
    async def test_no_more_timers_are_answered_than_asked_for(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            due = world.clock.now() + 1_000
            for number in range(10):
                (a,) = (await world.accept(f"x{number}")).emitted
                (b,) = (await world.done(a, execution=f"x{number}")).emitted
                await world.done(b, Suspend(until=due), f"x{number}")
            world.clock.advance(1_000)
            seen: list[str] = []
            while found := await world.state.due_timers(4):
                assert len(found) <= 4
                seen += [each.execution for each in found if each.emitted]
            assert sorted(seen) == [f"x{number}" for number in range(10)]

    @scenario
    async def test_an_ended_execution_refuses_everything(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (b,) = (await self._at_b(world)).emitted
            end = ExecutionEnded(world.clock.now(), "cancelled")
            await world.journal.record("x", [end])
            await world.state.end("x", end)
            claim = await world.state.claim("x", b, "me", leased=True)
            assert claim.verdict not in ("run", "cancelled")
            late = await world.state.apply("x", [world.decision(b)])
            assert (late.emitted, late.finish) == ((), None)
            world.clock.advance(10 * LEASE)
            assert [each for each in await world.state.due_timers(10) if each.emitted or each.finish] == []

    @scenario
    async def test_an_end_that_nobody_wrote_is_offered_again(self, folder: Path) -> None:
        """The act that brought the count to zero armed a timer: the terminal row comes, whoever died."""
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (b,) = (await self._at_b(world)).emitted
            (c,) = (await world.done(b)).emitted
            last = await world.done(c)
            assert last.finish is not None
            clock.advance(10 * LEASE)
            assert any(each.finish is not None for each in await world.state.due_timers(10))
        async with self.world(folder, chain(), clock) as world:
            clock.advance(10 * LEASE)
            assert any(each.finish is not None for each in await world.state.due_timers(10))

    @scenario
    async def test_executions_share_nothing(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept("x")).emitted
            await world.accept("y")
            await world.done(a, execution="x")
            assert (await world.state.claim("y", a, "me", leased=False)).verdict == "run"
