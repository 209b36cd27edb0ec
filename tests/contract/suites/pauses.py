"""What every state promises of pauses: nothing begins in one, nothing is lost by one, and no timeout counts it."""

from __future__ import annotations

from pathlib import Path

from rune.codec.facts import Inline
from rune.core.execution.fact import NodeResult, PauseChanged
from rune.core.execution.outcome import Suspend
from rune.core.execution.token import Token
from rune.testing.clock import VirtualClock
from tests.contract.suites.scenario import scenario
from tests.contract.suites.world import StateSuite, World, chain, hurried, joined

MINUTE = 60_000


def _nodes(tokens: list[Token]) -> list[int]:
    return [each.node for each in tokens]


class PauseContract(StateSuite):
    """Pauses and resumes."""

    async def _second(self, world: World) -> Token:
        (a,) = (await world.accept()).emitted
        (b,) = (await world.done(a)).emitted
        return b

    @scenario
    async def test_a_pause_parks_and_a_resume_sends(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            b = await self._second(world)
            assert await world.control(1, paused=True) == []
            assert await world.verdicts([b], leased=True) == ["parked"]
            assert _nodes(await world.control(2, paused=False)) == [b.node]
            assert await world.verdicts([b], leased=True) == ["run"]

    @scenario
    async def test_a_commit_under_a_pause_parks_what_it_emits(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            assert await world.verdicts([a]) == ["run"]
            await world.control(1, paused=True)
            emitted = (await world.done(a)).emitted
            assert await world.verdicts(emitted) == ["parked"] * len(emitted)
            assert _nodes(await world.control(2, paused=False)) == [world.node("b")]

    @scenario
    async def test_it_tells_how_often_it_was_paused_and_whether_it_is(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            await self._second(world)
            assert await world.state.pause_state("x") == (0, False)
            for number, paused in enumerate((True, False, True), start=1):
                await world.control(number, paused=paused)
                assert await world.state.pause_state("x") == (number, paused)
                await world.rest()
                assert await world.state.pause_state("x") == (number, paused)
            world.lose_state()
            assert await world.state.pause_state("x") == (3, True)

    @scenario
    async def test_a_control_that_comes_again_changes_nothing(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            b = await self._second(world)
            await world.control(1, paused=True)
            await world.control(2, paused=False)
            assert await world.verdicts([b], leased=True) == ["run"]
            for fact in (PauseChanged(world.clock.now(), 1, True), PauseChanged(world.clock.now(), 2, False)):
                assert (await world.state.control("x", fact)).emitted == ()
            assert await world.state.pause_state("x") == (2, False)

    @scenario
    async def test_a_wait_that_ends_in_a_pause_goes_on_with_the_resume(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            b = await self._second(world)
            await world.done(b, Suspend(until=world.clock.now() + MINUTE))
            await world.control(1, paused=True)
            world.clock.advance(2 * MINUTE)
            parked = await world.due()
            assert await world.verdicts(parked) == ["parked"] * len(parked)
            (resumed,) = await world.control(2, paused=False)
            assert (resumed.node, resumed.resumed) == (b.node, True)
            assert await world.verdicts([resumed]) == ["run"]

    @scenario
    async def test_a_wait_keeps_its_date_over_a_pause(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            b = await self._second(world)
            await world.done(b, Suspend(until=world.clock.now() + MINUTE))
            await world.control(1, paused=True)
            world.clock.advance(MINUTE // 2)
            assert await world.control(2, paused=False) == []
            world.clock.advance(MINUTE // 2 - 1)
            assert await world.due() == []
            world.clock.advance(1)
            assert _nodes(await world.due()) == [b.node]

    @scenario
    async def test_a_signal_in_a_pause_is_taken_and_goes_on_with_the_resume(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            b = await self._second(world)
            await world.done(b, Suspend(signal="go"))
            await world.control(1, paused=True)
            parked = await world.signal("s")
            assert await world.verdicts(parked) == ["parked"] * len(parked)
            assert await world.state.waiting_for_signal("x") == []
            (resumed,) = await world.control(2, paused=False)
            assert (resumed.node, resumed.signal) == (b.node, "s")

    @scenario
    async def test_the_timeout_of_a_join_moves_by_the_length_of_the_pause(self, folder: Path) -> None:
        await self._try_timeout(folder, lose=False)

    @scenario
    async def test_the_timeout_of_a_join_moves_by_the_pause_whatever_was_lost(self, folder: Path) -> None:
        await self._try_timeout(folder, lose=True)

    async def _try_timeout(self, folder: Path, *, lose: bool) -> None:
        async with self.world(folder, joined()) as world:

            def perhaps_lose() -> None:
                if lose:
                    world.lose_state()

            a, b = (await world.accept()).emitted
            await world.done(a)
            world.clock.advance(10_000)
            await world.control(1, paused=True)
            perhaps_lose()
            world.clock.advance(5 * MINUTE)
            given_up = await world.due()
            assert await world.verdicts(given_up) == ["done"] * len(given_up)
            perhaps_lose()
            assert _nodes(await world.control(2, paused=False)) == [b.node]
            perhaps_lose()
            world.clock.advance(49_999)
            assert world.node("c") not in _nodes(await world.due())
            world.clock.advance(1)
            assert _nodes(await world.due()) == [world.node("c")]

    @scenario
    async def test_the_timeout_of_an_execution_moves_by_the_length_of_the_pause(self, folder: Path) -> None:
        async with self.world(folder, hurried()) as world:
            (a,) = (await world.accept()).emitted
            world.clock.advance(10_000)
            await world.control(1, paused=True)
            world.clock.advance(5 * MINUTE)
            assert [each.finish for each in await world.state.due_timers(10) if each.finish] == []
            assert _nodes(await world.control(2, paused=False)) == [a.node]
            world.clock.advance(49_999)
            assert [each.finish for each in await world.state.due_timers(10) if each.finish] == []
            world.clock.advance(1)
            (finish,) = [each.finish for each in await world.state.due_timers(10) if each.finish]
            assert finish.status == "failed"

    @scenario
    async def test_an_execution_goes_on_from_what_it_began_with(self, folder: Path) -> None:
        """Paused or lost: what was taken over from another execution is not run again."""
        async with self.world(folder, chain()) as world:
            kept = NodeResult(world.node("a"), (), world.clock.now(), "ok", value=Inline(b"1"), kept=True)
            b = Token(world.node("b"))
            assert _nodes(list((await world.accept(kept=[kept])).emitted)) == [b.node]
            assert await world.verdicts([Token(world.node("a"))]) == ["done"]
            world.lose_state()
            assert _nodes(list((await world.state.begin("x")).emitted)) == [b.node]
            await world.control(1, paused=True)
            assert _nodes(await world.control(2, paused=False)) == [b.node]

    @scenario
    async def test_a_pause_survives_a_loss(self, folder: Path) -> None:
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            b = await self._second(world)
            await world.control(1, paused=True)
        async with self.world(folder, chain(), clock) as world:
            assert await world.verdicts([b], leased=True) == ["parked"]
            world.lose_state()
            assert (await world.state.begin("x")).emitted == ()
            clock.advance(10 * MINUTE)
            assert await world.due() == []
            assert _nodes(await world.control(2, paused=False)) == [b.node]

    @scenario
    async def test_a_resume_that_the_state_never_heard_of_is_found_by_the_next_owner(
        self, folder: Path
    ) -> None:
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            b = await self._second(world)
            await world.control(1, paused=True)
            await world.rest()
            clock.advance(10 * MINUTE)
            await world.journal.record("x", [PauseChanged(clock.now(), 2, False)])
            left = self.crashed(folder)
        async with self.world(left, chain(), clock) as world:
            assert _nodes(await world.due()) == [b.node]

    @scenario
    async def test_a_resume_in_the_moment_of_a_commit_is_found_by_the_next_owner(self, folder: Path) -> None:
        """The last node that ran in the pause is done, and the state that parked what follows did not know."""
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (a,) = (await world.accept()).emitted
            assert await world.verdicts([a]) == ["run"]
            await world.control(1, paused=True)
            decision = await world.journaled(world.decision(a))
            await world.journal.record("x", [PauseChanged(clock.now(), 2, False)])
            await world.state.apply("x", [decision])
            await world.rest()
            left = self.crashed(folder)
        async with self.world(left, chain(), clock) as world:
            assert _nodes(await world.due()) == [world.node("b")]
