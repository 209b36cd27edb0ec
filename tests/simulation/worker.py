"""A worker of the simulated world. It may die at every `yield`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rune.core.execution.decision import Decision
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    RaceWinner,
    TokenFact,
)
from rune.core.execution.inline_run import InlineRun
from rune.core.execution.outcome import Cancelled, Error, Failure, Outcome
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from tests.simulation.execution import Execution
from tests.simulation.family import abandon, finish
from tests.simulation.journal import Ended, Spent
from tests.simulation.store import Lease

if TYPE_CHECKING:
    from tests.simulation.world import Delivery, Realm

UNKNOWN = Error("UNKNOWN_OUTCOME", "an earlier run broke off", engine=True)


class Worker:
    """Handles one delivery: claim, run, journal, state, queue, ack, in this order."""

    def __init__(self, world: Realm, number: int, delivery: Delivery) -> None:
        self.world = world
        self.execution = delivery.execution
        self.number = number
        self.delivery = delivery
        self.running: tuple[Token, int] | None = None  # what it was let run, and in which fold
        self.steps = self._until_ended()

    def _until_ended(self) -> Iterator[None]:
        """Handle the delivery; whoever finds the terminal row closes the state and leaves."""
        world, execution = self.world, self.execution
        try:
            yield from self._handle()
        except Ended:
            end = execution.journal.end
            assert end is not None
            execution.store.close(end, world.now)
            world.ack(self.delivery)
        except Spent:
            # The state gave away a signal that it had not seen taken: it is behind the journal.
            for token in execution.store.refold(world.now)[1]:
                world.send(execution, token)
            world.ack(self.delivery)

    def _handle(self) -> Iterator[None]:
        world, execution = self.world, self.execution
        plan, store = execution.case.plan, execution.store
        yield
        token = self.delivery.token
        leases = token.fate is TokenPurpose.RUN and not plan.nodes[token.node].pure
        verdict, token, lease, again = store.claim(token, self.number, world.now, leases=leases)
        if verdict not in ("run", "cancelled"):
            world.ack(self.delivery)
            return
        self.running = (token, store.folds) if token.fate is TokenPurpose.RUN else None
        yield
        stored = execution.journal.newest(token) if again else None
        run = InlineRun(plan, token, in_place=world.in_place, bound=world.bound())
        if stored is None:
            if plan.nodes[token.node].needs_choice and verdict == "run" and token.fate is TokenPurpose.RUN:
                token = yield from self._choose(token)
                run = InlineRun(plan, token, in_place=world.in_place, bound=world.bound())
            yield from self._run(run, token, lease, cancelled=verdict == "cancelled")
            yield
            if self._is_stale(run, token, lease):
                world.ack(self.delivery)
                return
        yield from self._commit(run, stored)

    def _choose(self, token: Token) -> Generator[None, None, Token]:
        """Say which parties opened a race before anything follows from it."""
        world, execution = self.world, self.execution
        fact = RaceWinner(token.node, token.path, world.now, token.arrived, token.payload, token.error)
        (chosen,) = execution.journal.record([fact])
        assert isinstance(chosen, RaceWinner)
        yield
        applied = execution.store.apply(
            [decision_for_fact(execution.case.plan, chosen)], world.now, keeps=True
        )
        for each in applied.emitted:
            world.send(execution, each)
        return replace(token, arrived=chosen.arrived, payload=chosen.payload, error=chosen.error)

    def _run(self, run: InlineRun, first: Token, lease: Lease | None, *, cancelled: bool) -> Iterator[None]:
        while (token := run.next()) is not None:
            decision = yield from self._decide(run, token, lease, cancelled=cancelled and token is first)
            run.add(decision)

    def _decide(
        self, run: InlineRun, token: Token, lease: Lease | None, *, cancelled: bool
    ) -> Generator[None, None, Decision]:
        world, plan = self.world, self.execution.case.plan
        node = plan.nodes[token.node]
        if node.type.launches and (cancelled or token.fate is TokenPurpose.OVERDUE):
            yield from abandon(world, self.execution, token)
        if cancelled:
            return step(plan, token, Cancelled(), world.now)
        if token.fate is not TokenPurpose.RUN:
            return step_unrun(plan, token, world.now)
        once = node.node.at_most_once and not node.type.launches and not token.resumed
        if once and not self._begins(token):
            return step(plan, token, Failure(UNKNOWN), world.now)
        outcome = yield from self._outcome(run, token, lease)
        return step(plan, token, outcome, world.now)

    def _outcome(self, run: InlineRun, token: Token, lease: Lease | None) -> Generator[None, None, Outcome]:
        world, node = self.world, self.execution.case.plan.nodes[token.node]
        nodes = world.nodes[self.execution.id]
        if node.pure:
            return nodes.run(token, lease, run.decisions)
        yield
        if node.type.launches:
            return (yield from nodes.launch(token, run.decisions))
        outcome = nodes.run(token, lease, run.decisions)
        for _ in range(world.rng.randrange(6)):
            yield  # the effect is made, nobody knows yet
        return outcome

    def _begins(self, token: Token) -> bool:
        """Say that an effect is about to be made; False: somebody said so before."""
        mine = EffectStarted(token.node, token.path, self.world.now, token.attempt)
        (stored,) = self.execution.journal.record([mine])
        return stored is mine

    def _is_stale(self, run: InlineRun, token: Token, lease: Lease | None) -> bool:
        """A failure is only journaled by a holder that proves its fence."""
        fact = run.decisions[0].fact
        failed = isinstance(fact, AttemptFailed) or (isinstance(fact, NodeResult) and fact.status == "failed")
        store = self.execution.store
        return failed and lease is not None and not store.renew(token, lease, self.world.now)

    def _commit(self, run: InlineRun, stored: TokenFact | None) -> Iterator[None]:
        """Crash at any yield: the row is found and applied, the sweeper sends, the delivery comes again."""
        world, execution = self.world, self.execution
        plan, store = execution.case.plan, execution.store
        decisions = [decision_for_fact(plan, stored)] if stored is not None else self._journal(run)
        yield
        applied = store.apply(decisions, world.now)
        self.running = None
        yield
        for token in run.remaining(applied.emitted):
            world.send(execution, token)
            yield
        if applied.finish is not None:
            yield from finish(world, execution, applied.finish)
        world.ack(self.delivery)

    def _journal(self, run: InlineRun) -> list[Decision]:
        """If the first fact was somebody else's, the whole run is dropped and the stored fact used."""
        world, execution = self.world, self.execution
        facts: list[Fact] = [each.fact for each in run.decisions if each.fact is not None]
        if not facts:
            return run.decisions
        how = execution.store.certain_end(run.decisions, world.now) if world.foresees else None
        end = [] if how is None else [ExecutionEnded(world.now, how.status, how.error)]
        stored = execution.journal.record([*facts, *end])
        first = stored[0]
        if first is facts[0]:
            return run.decisions
        assert isinstance(first, TokenFact)
        return [decision_for_fact(execution.case.plan, first)]


def relay(world: Realm, execution: Execution) -> Iterator[None]:
    """Publish the completion and close the state; only then is the outbox row gone."""
    while execution.journal.outbox:
        row = execution.journal.outbox[0]
        yield
        execution.completions.append(row)
        yield
        execution.store.close(row, world.now)
        yield
        if row in execution.journal.outbox:
            execution.journal.outbox.remove(row)
