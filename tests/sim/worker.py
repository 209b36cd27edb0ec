"""A worker of the simulated world. It may die at every `yield`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from rune.core.effect import Decision
from rune.core.fact import Attempt, Choice, End, Result, TokenFact
from rune.core.inplace import Run
from rune.core.outcome import Cancelled
from rune.core.routing import follow
from rune.core.step import step, step_unrun
from rune.core.token import Fate, Token
from tests.sim.journal import Ended
from tests.sim.store import Lease

if TYPE_CHECKING:
    from tests.sim.world import Delivery, World


class Worker:
    """Handles one delivery: claim, run, journal, state, queue, ack, in this order."""

    def __init__(self, world: World, number: int, delivery: Delivery) -> None:
        self.world = world
        self.number = number
        self.delivery = delivery
        self.steps = self._until_ended()

    def _until_ended(self) -> Iterator[None]:
        """Handle the delivery; whoever finds the terminal row closes the state and leaves."""
        try:
            yield from self._handle()
        except Ended:
            end = self.world.journal.end
            assert end is not None
            self.world.store.close(end, self.world.now)
            self.world.ack(self.delivery)

    def _handle(self) -> Iterator[None]:
        world = self.world
        yield
        token = self.delivery.token
        leases = token.fate is Fate.RUN and not world.plan.nodes[token.node].pure
        verdict, token, lease, again = world.store.claim(token, self.number, world.now, leases=leases)
        if verdict not in ("run", "cancelled"):
            world.ack(self.delivery)
            return
        yield
        stored = world.journal.result(token.node, token.path) if again else None
        run = Run(world.plan, token, in_place=world.in_place, bound=world.bound())
        if stored is None:
            if world.needs_choice(token) and verdict == "run" and token.fate is Fate.RUN:
                token = yield from self._choose(token)
                run = Run(world.plan, token, in_place=world.in_place, bound=world.bound())
            yield from self._run(run, token, lease, cancelled=verdict == "cancelled")
            yield
            if self._is_stale(run, token, lease):
                world.ack(self.delivery)
                return
        yield from self._commit(run, stored)

    def _choose(self, token: Token) -> Generator[None, None, Token]:
        """Say which parties opened a race before anything follows from it."""
        world = self.world
        fact = Choice(token.node, token.path, world.now, token.arrived, token.payload, token.error)
        (chosen,) = world.journal.record([fact])
        assert isinstance(chosen, Choice)
        yield
        world.store.apply([follow(world.plan, chosen)], world.now, keeps=True)
        return Token(
            token.node,
            token.path,
            chosen.payload,
            chosen.error,
            chosen.arrived,
            token.fate,
            token.attempt,
            token.resumed,
        )

    def _run(self, run: Run, first: Token, lease: Lease | None, *, cancelled: bool) -> Iterator[None]:
        world = self.world
        while (token := run.next()) is not None:
            if cancelled:
                decision = step(world.plan, token, Cancelled(), world.now)
            elif token.fate is not Fate.RUN:
                decision = step_unrun(world.plan, token, world.now)
            else:
                if not world.plan.nodes[token.node].pure:
                    yield
                outcome = world.nodes.run(token, lease, run.decisions)
                if not world.plan.nodes[token.node].pure:
                    yield from (
                        None for _ in range(world.rng.randrange(6))
                    )  # the effect is made, nobody knows yet
                decision = step(world.plan, token, outcome, world.now)
            run.add(decision)

    def _is_stale(self, run: Run, token: Token, lease: Lease | None) -> bool:
        """A failure is only journaled by a holder that proves its fence."""
        fact = run.decisions[0].fact
        failed = isinstance(fact, Attempt) or (isinstance(fact, Result) and fact.status == "failed")
        return failed and lease is not None and not self.world.store.renew(token, lease, self.world.now)

    def _commit(self, run: Run, stored: Result | None) -> Iterator[None]:
        """Crash at any yield: the row is found and applied, the sweeper sends, the delivery comes again."""
        world = self.world
        decisions = [follow(world.plan, stored)] if stored is not None else self._journal(run)
        yield
        applied = world.store.apply(decisions, world.now)
        yield
        for token in run.left(applied.emitted):
            world.send(token)
            yield
        if applied.finish is not None:
            world.journal.record([End(world.now, applied.finish.status, applied.finish.error)])
            yield
        world.ack(self.delivery)

    def _journal(self, run: Run) -> list[Decision]:
        """If the first fact was somebody else's, the whole run is dropped and the stored fact used."""
        facts = [each.fact for each in run.decisions if each.fact is not None]
        if not facts:
            return run.decisions
        stored = self.world.journal.record(facts)
        first = stored[0]
        if first is facts[0]:
            return run.decisions
        assert isinstance(first, TokenFact)
        return [follow(self.world.plan, first)]


def relay(world: World) -> Iterator[None]:
    """Publish the completion and close the state; only then is the outbox row gone."""
    while world.journal.outbox:
        row = world.journal.outbox[0]
        yield
        world.completions.append(row)
        yield
        world.store.close(row, world.now)
        yield
        if row in world.journal.outbox:
            world.journal.outbox.remove(row)
