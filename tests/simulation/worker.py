"""A simulated worker. It may crash at every `yield`."""

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
from rune.core.execution.step import decision_for_fact, step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from tests.simulation.children import cancel_child_of, finish_execution
from tests.simulation.execution import Execution
from tests.simulation.journal import AlreadyEndedError, SignalTakenError
from tests.simulation.store import LEASE, Lease

if TYPE_CHECKING:
    from tests.simulation.simulator import Delivery, Simulator

UNKNOWN_OUTCOME = Error("UNKNOWN_OUTCOME", "an earlier attempt was interrupted", engine=True)


class LeaseLapsedError(Exception):
    """The answer to the claim is so late that another worker may run the token."""


class Worker:
    """Handles one delivery: claim, run, journal, state, queue, ack, in this order."""

    def __init__(self, sim: Simulator, number: int, delivery: Delivery) -> None:
        self.sim = sim
        self.execution = delivery.execution
        self.number = number
        self.delivery = delivery
        self.running: tuple[Token, int] | None = None  # claimed token, and the fold of its claim
        self.lease_until = 0
        self.steps = self._process()

    def _process(self) -> Iterator[None]:
        """Handle the delivery; if the terminal row exists, close the state."""
        sim, execution = self.sim, self.execution
        try:
            yield from self._handle()
        except LeaseLapsedError:
            sim.ack(self.delivery)
        except AlreadyEndedError:
            end = execution.journal.end
            assert end is not None
            execution.store.close(end, sim.now)
            sim.ack(self.delivery)
        except SignalTakenError:
            # The state assigned a signal that the journal shows as taken: it is behind the journal.
            for token in execution.store.refold(sim.now)[1]:
                sim.send(execution, token)
            sim.ack(self.delivery)

    def _handle(self) -> Iterator[None]:
        sim, execution = self.sim, self.execution
        plan, store = execution.case.plan, execution.store
        yield
        token = self.delivery.token
        leases = token.fate is TokenPurpose.RUN and not plan.nodes[token.node].pure
        asked = sim.now
        sim.command(execution, lambda now: store.claim(self.delivery.token, self.number, now, leases=leases))
        verdict, token, lease, reclaimed = store.claim(token, self.number, sim.now, leases=leases)
        if verdict not in ("run", "cancelled"):
            sim.ack(self.delivery)
            return
        self.running = (token, store.folds) if token.fate is TokenPurpose.RUN else None
        yield  # the answer may be late
        self.lease_until = asked + LEASE
        stored = execution.journal.latest(token) if reclaimed else None
        run = InlineRun(plan, token, in_place=sim.in_place, bound=sim.bound())
        if stored is None:
            if plan.nodes[token.node].needs_choice and verdict == "run" and token.fate is TokenPurpose.RUN:
                token = yield from self._record_race_winner(token)
                run = InlineRun(plan, token, in_place=sim.in_place, bound=sim.bound())
            yield from self._run(run, token, lease, cancelled=verdict == "cancelled")
            yield
            if self._is_stale(run, token, lease):
                sim.ack(self.delivery)
                return
        yield from self._commit(run, stored)

    def _record_race_winner(self, token: Token) -> Generator[None, None, Token]:
        """Store which arrivals opened a race before the token runs."""
        sim, execution = self.sim, self.execution
        fact = RaceWinner(token.node, token.path, sim.now, token.arrived, token.payload, token.error)
        (chosen,) = execution.journal.record([fact])
        assert isinstance(chosen, RaceWinner)
        yield
        applied = execution.store.apply(
            [decision_for_fact(execution.case.plan, chosen)], sim.now, keep_claim=True
        )
        for each in applied.emitted:
            sim.send(execution, each)
        return replace(token, arrived=chosen.arrived, payload=chosen.payload, error=chosen.error)

    def _run(self, run: InlineRun, first: Token, lease: Lease | None, *, cancelled: bool) -> Iterator[None]:
        while (token := run.next()) is not None:
            decision = yield from self._decide(run, token, lease, cancelled=cancelled and token is first)
            run.add(decision)

    def _decide(
        self, run: InlineRun, token: Token, lease: Lease | None, *, cancelled: bool
    ) -> Generator[None, None, Decision]:
        sim, plan = self.sim, self.execution.case.plan
        node = plan.nodes[token.node]
        if node.type.launches and (cancelled or token.fate is TokenPurpose.OVERDUE):
            yield from cancel_child_of(sim, self.execution, token)
        if cancelled:
            return step(plan, token, Cancelled(), sim.now)
        if token.fate is not TokenPurpose.RUN:
            return step_unrun(plan, token, sim.now)
        at_most_once = node.node.at_most_once and not node.type.launches and not token.resumed
        if at_most_once and not self._record_effect_start(token):
            return step(plan, token, Failure(UNKNOWN_OUTCOME), sim.now)
        outcome = yield from self._outcome(run, token, lease)
        return step(plan, token, outcome, sim.now)

    def _outcome(self, run: InlineRun, token: Token, lease: Lease | None) -> Generator[None, None, Outcome]:
        sim, node = self.sim, self.execution.case.plan.nodes[token.node]
        runner = sim.node_runners[self.execution.id]
        if node.pure:
            outcome = runner.run(token, lease, run.decisions)
            sim.now += sim.node_time()
            return outcome
        yield
        if not self._may_begin():
            raise LeaseLapsedError
        if node.type.launches:
            return (yield from runner.launch(token, run.decisions))
        outcome = runner.run(token, lease, run.decisions)
        for _ in range(sim.rng.randrange(6)):
            yield  # the effect is made, its result is not stored yet
        sim.now += sim.node_time()
        if lease is not None and lease.until <= sim.now and sim.rng.random() < 0.5:
            return Failure(Error("LOST", "the lease expired"))
        return outcome

    def _may_begin(self) -> bool:
        """Whether the lease certainly still holds: it counts from the moment at which the worker asked for it."""
        return self.sim.now < self.lease_until

    def _record_effect_start(self, token: Token) -> bool:
        """Store that an effect starts; False if an earlier attempt stored it."""
        started = EffectStarted(token.node, token.path, self.sim.now, token.attempt)
        (stored,) = self.execution.journal.record([started])
        return stored is started

    def _is_stale(self, run: InlineRun, token: Token, lease: Lease | None) -> bool:
        """Whether a failed token lost its lease; only the lease holder may store a failure."""
        fact = run.decisions[0].fact
        failed = isinstance(fact, AttemptFailed) or (isinstance(fact, NodeResult) and fact.status == "failed")
        store = self.execution.store
        return failed and lease is not None and not store.renew(token, lease, self.sim.now)

    def _commit(self, run: InlineRun, stored: TokenFact | None) -> Iterator[None]:
        """Write journal, state and queue, then acknowledge.

        After a crash the message is delivered again and the stored row is applied.
        """
        sim, execution = self.sim, self.execution
        plan, store = execution.case.plan, execution.store
        decisions = [decision_for_fact(plan, stored)] if stored is not None else self._store_run(run)
        yield
        applied = store.apply(decisions, sim.now)
        self.running = None
        yield
        sim.command(execution, lambda now: store.apply(decisions, now))
        for token in run.remaining(applied.emitted):
            sim.send(execution, token)
            yield
        if applied.finish is not None:
            yield from finish_execution(sim, execution, applied.finish)
        sim.ack(self.delivery)

    def _store_run(self, run: InlineRun) -> list[Decision]:
        """Store the facts of a run; if another worker stored the first one, use that and drop the run."""
        sim, execution = self.sim, self.execution
        facts: list[Fact] = [each.fact for each in run.decisions if each.fact is not None]
        if not facts:
            return run.decisions
        finish = execution.store.predicted_end(run.decisions, sim.now) if sim.predicts_end else None
        end = [] if finish is None else [ExecutionEnded(sim.now, finish.status, finish.error)]
        stored = execution.journal.record([*facts, *end])
        first = stored[0]
        if first is facts[0]:
            return run.decisions
        assert isinstance(first, TokenFact)
        return [decision_for_fact(execution.case.plan, first)]


def relay(sim: Simulator, execution: Execution) -> Iterator[None]:
    """Publish the completion and close the state, then remove the outbox row."""
    while execution.journal.outbox:
        row = execution.journal.outbox[0]
        yield
        execution.completions.append(row)
        yield
        execution.store.close(row, sim.now)
        yield
        if row in execution.journal.outbox:
            execution.journal.outbox.remove(row)
