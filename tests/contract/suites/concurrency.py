"""What every state promises where only so many may run at once, and of what is more urgent than the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from rune.codec.facts import Inline
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import FanOut, Suspend
from rune.core.execution.token import Token
from rune.ports.state import Applied
from tests.contract.suites.scenario import scenario
from tests.contract.suites.world import StateSuite, World, chain, crowd, fan

LEASE = 9_000
URGENT = 9


class _Workers:
    """Claims what is sent and ends the oldest of those that run whenever nothing else is to be done."""

    def __init__(self, world: World, *, leased: bool = False) -> None:
        self._world = world
        self._leased = leased
        self.running: deque[Token] = deque()
        self.most = 0

    async def work(self, tokens: Iterable[Token]) -> FinishExecution | None:
        """Until nothing is left; answers the end if it came."""
        waiting = deque(tokens)
        finish: FinishExecution | None = None
        while waiting or self.running:
            if waiting:
                await self.claim(waiting.popleft())
                continue
            applied = await self.end_one()
            waiting += applied.emitted
            finish = finish or applied.finish
        return finish

    async def claim(self, token: Token) -> str:
        verdict = (await self._world.state.claim("x", token, "me", leased=self._leased)).verdict
        if verdict == "run":
            self.running.append(token)
            self.most = max(self.most, len(self.running))
        return verdict

    async def end_one(self) -> Applied:
        return await self._world.done(self.running.popleft())


class CrowdContract(StateSuite):
    """So many at once, and no more; the urgent as such."""

    @scenario
    async def test_whoever_is_one_too_many_is_held_back_and_comes_when_one_is_done(
        self, folder: Path
    ) -> None:
        for leased in (False, True):
            async with self.world(folder / str(leased), crowd()) as world:
                a, b, *rest = (await world.accept()).emitted
                held = ["held back"] * len(rest)
                assert await world.verdicts([a, b, *rest], leased=leased) == ["run", "run", *held]
                (next_one,) = (await world.done(a)).emitted
                assert next_one in rest
                assert await world.verdicts([next_one], leased=leased) == ["run"]

    @scenario
    async def test_a_place_that_is_free_is_taken_by_whoever_asks(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            a, b, c, *_ = (await world.accept()).emitted
            await world.verdicts([a, b])
            assert (await world.done(a)).emitted == ()
            assert await world.verdicts([c]) == ["run"]

    @scenario
    async def test_never_more_run_than_may_and_all_of_them_do(self, folder: Path) -> None:
        for leased in (False, True):
            async with self.world(folder / str(leased), crowd()) as world:
                workers = _Workers(world, leased=leased)
                finish = await workers.work((await world.accept()).emitted)
                assert (finish, workers.most) == (FinishExecution("completed"), 2)

    @scenario
    async def test_the_items_of_a_fan_out_are_counted_together(self, folder: Path) -> None:
        async with self.world(folder, fan(3)) as world:
            (split,) = (await world.accept()).emitted
            await world.verdicts([split])
            items = (await world.done(split, FanOut(10, Inline(b"[]")))).emitted
            workers = _Workers(world)
            finish = await workers.work(items)
            assert (len(items), finish, workers.most) == (10, FinishExecution("completed"), 3)

    @scenario
    async def test_who_asks_twice_and_is_held_back_does_not_stand_in_the_way(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            tokens = (await world.accept()).emitted
            workers = _Workers(world, leased=True)
            for token in tokens:
                for _ in range(3):
                    await workers.claim(token)
            assert len(workers.running) == 2
            assert await workers.work(()) == FinishExecution("completed")
            assert workers.most == 2

    @scenario
    async def test_who_waits_takes_no_place(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            a, b, c, *_ = (await world.accept()).emitted
            assert await world.verdicts([a, b, c]) == ["run", "run", "held back"]
            (let_in,) = (await world.done(a, Suspend(signal="go"))).emitted
            assert let_in == c
            assert await world.verdicts([c]) == ["run"]
            (resumed,) = await world.signal("s")
            assert await world.verdicts([resumed]) == ["held back"]
            assert resumed in (await world.done(b)).emitted
            assert await world.verdicts([resumed]) == ["run"]

    @scenario
    async def test_a_lost_lease_is_taken_over_where_all_places_are_taken(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            a, b, c, *_ = (await world.accept()).emitted
            assert await world.verdicts([a, b, c], leased=True) == ["run", "run", "held back"]
            world.clock.advance(LEASE + 1)
            assert {token.node for _, token, _ in await world.state.unclaimed_tokens(10)} == {a.node, b.node}
            assert await world.verdicts([a, c], leased=True) == ["run", "held back"]

    @scenario
    async def test_who_was_held_back_is_not_lost_with_the_state(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            a, *rest = (await world.accept()).emitted
            await world.verdicts([a, *rest])
            await world.done(a)
            world.lose_state()
            emitted = (await world.state.begin("x")).emitted
            assert {each.node for each in emitted} == {each.node for each in rest}
            workers = _Workers(world)
            assert await workers.work(emitted) == FinishExecution("completed")
            assert workers.most == 2

    @scenario
    async def test_who_was_held_back_comes_after_a_pause(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            tokens = (await world.accept()).emitted
            workers = _Workers(world)
            for token in tokens:
                await workers.claim(token)
            await world.control(1, paused=True)
            for _ in range(2):
                for token in (await workers.end_one()).emitted:
                    assert await workers.claim(token) == "parked"
            resumed = await world.control(2, paused=False)
            assert {each.node for each in resumed} == {each.node for each in tokens[2:]}
            assert await workers.work(resumed) == FinishExecution("completed")
            assert workers.most == 2

    @scenario
    async def test_executions_are_counted_apart(self, folder: Path) -> None:
        async with self.world(folder, crowd()) as world:
            await world.verdicts((await world.accept()).emitted)
            other, *_ = (await world.accept("y")).emitted
            assert (await world.state.claim("y", other, "me", leased=False)).verdict == "run"

    @scenario
    async def test_a_due_timer_tells_how_urgent_its_execution_is(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            due = world.clock.now() + 60_000
            for execution, priority in (("x", URGENT), ("y", 5)):
                (a,) = (await world.accept(execution, priority=priority)).emitted
                await world.done(a, Suspend(until=due), execution)
            await world.rest()
            world.clock.advance(60_000)
            fired = {
                each.execution: each.priority for each in await world.state.due_timers(10) if each.emitted
            }
            assert fired == {"x": URGENT, "y": 5}

    @scenario
    async def test_how_urgent_an_execution_is_outlives_the_state(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            await world.accept(priority=URGENT)
            world.lose_state()
            (found,) = [each for each in await world.state.due_timers(10) if each.emitted]
            assert (found.execution, found.priority) == ("x", URGENT)

    @scenario
    async def test_the_sweeper_is_told_how_urgent_an_execution_is(self, folder: Path) -> None:
        async with self.world(folder, chain()) as world:
            for execution, priority in (("x", URGENT), ("y", 5)):
                (a,) = (await world.accept(execution, priority=priority)).emitted
                await world.state.claim(execution, a, "me", leased=True)
            world.clock.advance(LEASE + 1)
            found = {execution: priority for execution, _, priority in await world.state.unclaimed_tokens(10)}
            assert found == {"x": URGENT, "y": 5}
