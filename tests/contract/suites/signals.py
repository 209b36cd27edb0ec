"""What every state promises of signals: each resumes one that waits, now or later, and no loss takes it away."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rune.core.execution.outcome import Suspend
from rune.core.execution.token import Token
from rune.ports.state import Listener
from rune.testing.clock import VirtualClock
from tests.contract.suites.scenario import scenario
from tests.contract.suites.world import StateSuite, World, chain, fan, joined

GO = Suspend(signal="go")
SIGNALLERS = 20


def _named(tokens: list[Token]) -> list[tuple[int, str | None]]:
    return [(each.node, each.signal) for each in tokens]


class SignalContract(StateSuite):
    """Signals and those who wait for them."""

    async def _waiting(self, world: World) -> Token:
        """The first node of a chain waits for a signal."""
        (a,) = (await world.accept()).emitted
        assert (await world.done(a, GO)).emitted == ()
        return a

    @scenario
    async def test_a_signal_resumes_the_one_that_waits(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            a = await self._waiting(world)
            (resumed,) = await world.signal("s")
            assert (resumed.node, resumed.path, resumed.signal, resumed.resumed) == (a.node, (), "s", True)
            assert await world.state.waiting_for_signal("x") == []
            claim = await world.state.claim("x", resumed, "me", leased=False)
            assert (claim.verdict, claim.token.signal) == ("run", "s")
            (b,) = (await world.done(resumed)).emitted
            assert (b.node, b.signal, b.resumed) == (world.node("b"), None, False)

    @scenario
    async def test_a_signal_finds_one_that_sleeps(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            a = await self._waiting(world)
            await world.rest()
            world.clock.advance(10_000_000)
            assert await world.due() == []
            assert _named(await world.signal("s")) == [(a.node, "s")]

    @scenario
    async def test_the_token_from_before_the_wait_is_done(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            a = await self._waiting(world)
            assert await world.verdicts([a]) == ["done"]
            await world.signal("s")
            assert await world.verdicts([a]) == ["done"]

    @scenario
    async def test_a_signal_of_another_name_is_not_taken(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            a = await self._waiting(world)
            assert await world.signal("s", "stop") == []
            assert await world.state.waiting_for_signal("x") == [Listener("go", a.node, ())]
            assert _named(await world.signal("t", "go")) == [(a.node, "t")]

    @scenario
    async def test_a_signal_that_came_before_the_wait_is_taken_at_once(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            assert await world.signal("s") == []
            resumed = (await world.done(a, GO)).emitted
            assert _named(list(resumed)) == [(a.node, "s")]
            assert await world.state.waiting_for_signal("x") == []

    @scenario
    async def test_of_signals_that_came_before_the_oldest_is_taken_first(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (token,) = (await world.accept()).emitted
            for id in ("third", "second", "first"):
                assert await world.signal(id) == []
                world.clock.advance(1)
            taken = []
            for _ in range(3):
                (resumed,) = (await world.done(token, GO)).emitted
                taken.append(resumed.signal)
                (token, *_) = [*(await world.done(resumed)).emitted, resumed]
            assert taken == ["third", "second", "first"]

    @scenario
    async def test_of_those_who_wait_the_longest_is_resumed_first(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            await world.done(b, GO)
            world.clock.advance(5)
            await world.done(a, GO)
            listening = [Listener("go", b.node, ()), Listener("go", a.node, ())]
            assert await world.state.waiting_for_signal("x") == listening
            await world.rest()
            assert await world.state.waiting_for_signal("x") == listening
            assert _named(await world.signal("s")) == [(b.node, "s")]
            assert await world.state.waiting_for_signal("x") == listening[1:]
            assert _named(await world.signal("t")) == [(a.node, "t")]

    @scenario
    async def test_listeners_are_told_apart_by_what_they_wait_for(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            assert await world.state.waiting_for_signal("x") == []
            await world.done(a, Suspend(signal="later"))
            world.clock.advance(5)
            await world.done(b, Suspend(until=world.clock.now() + 60_000))
            assert await world.state.waiting_for_signal("x") == [Listener("later", a.node, ())]

    @scenario
    async def test_a_signal_is_addressed_by_its_lineage(self, folder: Path) -> None:
        async with self.world(folder, fan()) as world:
            items = await world.spread(3)
            for each in items:
                await world.done(each, GO)
                world.clock.advance(1)
            assert [each.path for each in await world.state.waiting_for_signal("x")] == [
                each.path for each in items
            ]
            (second,) = await world.signal("s", path=items[1].path)
            assert (second.path, second.signal) == (items[1].path, "s")
            assert await world.signal("t", path=items[1].path) == []
            (first,) = await world.signal("u")
            assert (first.path, first.signal) == (items[0].path, "u")
            (third,) = await world.signal("v", path=items[2].path)
            assert third.path == items[2].path

    @scenario
    async def test_a_kept_signal_is_only_for_whom_it_is_addressed_to(self, folder: Path) -> None:
        async with self.world(folder, fan()) as world:
            first, second = await world.spread(2)
            assert await world.signal("s", path=second.path) == []
            assert (await world.done(first, GO)).emitted == ()
            (resumed,) = (await world.done(second, GO)).emitted
            assert (resumed.path, resumed.signal) == (second.path, "s")
            world.lose_state()
            assert [each.path for each in await world.state.waiting_for_signal("x")] == [first.path]

    @scenario
    async def test_the_same_signal_twice_is_one(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            await world.done(a, GO)
            world.clock.advance(1)
            await world.done(b, GO)
            signal = await world.said("s")
            answers = await asyncio.gather(*(world.state.signal("x", signal) for _ in range(SIGNALLERS)))
            assert _named([token for each in answers for token in each.emitted]) == [(a.node, "s")]
            assert [each.node for each in await world.state.waiting_for_signal("x")] == [b.node]

    @scenario
    async def test_a_kept_signal_twice_is_one(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            signal = await world.said("s")
            for _ in range(2):
                assert (await world.state.signal("x", signal)).emitted == ()
            (resumed,) = (await world.done(a, GO)).emitted
            (b,) = (await world.done(resumed)).emitted
            assert (await world.done(b, GO)).emitted == ()

    @scenario
    async def test_a_signal_ends_the_wait_for_a_time(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            await world.done(a, Suspend(until=world.clock.now() + 60_000, signal="go"))
            (resumed,) = await world.signal("s")
            await world.done(resumed)
            world.clock.advance(120_000)
            assert [each for each in await world.due() if each.node == a.node] == []

    @scenario
    async def test_a_time_that_comes_first_leaves_the_signal_to_others(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            await world.done(a, Suspend(until=world.clock.now() + 60_000, signal="go"))
            world.clock.advance(60_000)
            (resumed,) = await world.due()
            assert _named([resumed]) == [(a.node, None)]
            assert await world.signal("s") == []
            (b,) = (await world.done(resumed)).emitted
            assert _named(list((await world.done(b, GO)).emitted)) == [(b.node, "s")]

    @scenario
    async def test_a_kept_signal_outlives_the_state(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            await world.signal("s")
            world.clock.advance(1)
            await world.signal("t")
            world.lose_state()
            assert _named(list((await world.state.begin("x")).emitted)) == [(a.node, None)]
            (resumed,) = (await world.done(a, GO)).emitted
            assert resumed.signal == "s"
            world.lose_state()
            assert _named(list((await world.state.begin("x")).emitted)) == [(a.node, "s")]

    @scenario
    async def test_a_lost_state_hears_a_signal_it_was_never_told_of(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            a = await self._waiting(world)
            await world.rest()
            await world.said("s")
            world.lose_state()
            assert _named(await world.due()) == [(a.node, "s")]

    @scenario
    async def test_a_signal_that_was_taken_is_not_taken_again_after_a_loss(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            await self._waiting(world)
            (resumed,) = await world.signal("s")
            (b,) = (await world.done(resumed)).emitted
            await world.done(b, GO)
            world.lose_state()
            assert (await world.state.begin("x")).emitted == ()
            assert await world.state.waiting_for_signal("x") == [Listener("go", b.node, ())]
            assert _named(await world.signal("t")) == [(b.node, "t")]

    @scenario
    async def test_who_waits_is_known_after_a_loss_in_the_same_order(self, folder: Path) -> None:
        async with self.world(folder, joined()) as world:
            a, b = (await world.accept()).emitted
            await world.done(b, GO)
            world.clock.advance(5)
            await world.done(a, GO)
            world.lose_state()
            assert [each.node for each in await world.state.waiting_for_signal("x")] == [b.node, a.node]
            assert _named(await world.signal("s")) == [(b.node, "s")]

    @scenario
    async def test_a_sleeper_that_was_signalled_is_found_by_the_next_owner(self, folder: Path) -> None:
        """Whoever took the signal down died before, or right after, the state heard of it."""
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            for execution in ("unheard", "heard"):
                (a,) = (await world.accept(execution)).emitted
                await world.done(a, GO, execution)
            await world.rest()
            clock.advance(10_000_000)
            assert await world.due() == []
            await world.said("s", execution="unheard")
            await world.signal("s", execution="heard")
            left = self.crashed(folder)
        for place in (left, folder):
            async with self.world(place, chain(), clock) as world:
                found = {
                    each.execution: _named(list(each.emitted)) for each in await world.state.due_timers(10)
                }
                assert found == {"unheard": [(a.node, "s")], "heard": [(a.node, "s")]}

    @scenario
    async def test_a_signal_in_the_moment_of_the_wait_is_found_by_the_next_owner(self, folder: Path) -> None:
        """Wait and signal are both written. The one state that knew of the wait had not heard of the signal."""
        clock = VirtualClock()
        async with self.world(folder, chain(), clock) as world:
            (a,) = (await world.accept()).emitted
            assert await world.due() == []
            decision = await world.journaled(world.decision(a, GO))
            await world.said("s")
            await world.state.apply("x", [decision])
            await world.rest()
            left = self.crashed(folder)
        async with self.world(left, chain(), clock) as world:
            assert _named(await world.due()) == [(a.node, "s")]

    @scenario
    async def test_a_signal_in_the_moment_of_the_wait_is_heard_here(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            (a,) = (await world.accept()).emitted
            decision = await world.journaled(world.decision(a, GO))
            signal = await world.said("s")
            emitted = [*(await world.state.apply("x", [decision])).emitted]
            await world.rest()
            emitted += (await world.state.signal("x", signal)).emitted
            assert set(_named([*emitted, *await world.due()])) == {(a.node, "s")}
