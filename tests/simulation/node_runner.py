"""How nodes run in the simulated world: the real behaviours, and one with a counted effect."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, NodeResult, SignalReceived
from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.core.execution.scope import ValueSource
from rune.core.execution.token import Path, Token, token_name
from rune.core.execution.joins import Lookup
from rune.nodes.base import NodeCall
from rune.nodes.registry import Registry, execute, execute_async, prepare
from tests.simulation.effect import FAILED
from tests.simulation.execution import Execution
from tests.simulation.family import launch
from tests.simulation.journal import Violation
from tests.simulation.store import Lease

if TYPE_CHECKING:
    from tests.simulation.world import Realm


class Nodes:
    """Runs the tokens of one execution and keeps a ledger of effects."""

    def __init__(self, world: Realm, execution: Execution, registry: Registry) -> None:
        self._world = world
        self._execution = execution
        self._registry = registry
        self.made: dict[tuple[str, int], int] = {}

    def run(self, token: Token, lease: Lease | None, decisions: list[Decision]) -> Outcome:
        """The outcome of a token. `decisions` are those of its own run, which nobody else can see yet."""
        node = self._execution.case.plan.nodes[token.node]
        kind = self._registry[node.node.type]
        prepared = self._prepared(token, decisions)
        outcome = prepared if isinstance(prepared, Failure) else execute(kind, prepared)
        if node.pure:
            return outcome
        if self._world.mended and isinstance(prepared, NodeCall) and _was_told_to_fail(outcome):
            outcome = Output({"did": prepared.parameters.key, "json": prepared.payload})
        return self._effect(token, lease, outcome, once=node.node.at_most_once)

    def launch(self, token: Token, decisions: list[Decision]) -> Generator[None, None, Outcome]:
        """The outcome of a token whose node starts another execution."""
        node = self._execution.case.plan.nodes[token.node]
        prepared = self._prepared(token, decisions)
        if isinstance(prepared, Failure):
            return prepared

        async def start(workflow: str, which: str | None, input: Any, waits: bool) -> str:
            return await launch(self._world, self._execution, token, workflow)

        prepared.launch = start
        return (yield from execute_async(self._registry[node.node.type], prepared).__await__())

    def _prepared(self, token: Token, decisions: list[Decision]) -> NodeCall[Any] | Failure:
        world, execution = self._world, self._execution
        plan = execution.case.plan
        own = {(each.node, each.path): each.fact for each in decisions if isinstance(each.fact, NodeResult)}

        def results(node: int, path: Path) -> NodeResult | None:
            fact = own.get((node, path))
            return fact if isinstance(fact, NodeResult) else execution.journal.result(node, path)

        self._check_started(token, results)
        name = token_name(token.node, token.path, plan.ids)
        values = ValueSource(plan, execution.case.start, results, {"id": execution.id}, lambda value: value)
        node = plan.nodes[token.node]
        return prepare(
            self._registry[node.node.type],
            node.parameters,
            values.scope(token, world.now / 1000, name),
            now=world.now,
            node=node.id,
            arrivals=lambda: values.arrivals(token),
            entries=lambda: values.entries(token),
            attempt=token.attempt,
            resumed=token.resumed,
            timer_id=f"wait:{name}",
            due=world.now,
            signal=self._heard(token),
        )

    def _heard(self, token: Token) -> Any:
        if token.signal is None:
            return None
        fact = self._execution.journal.facts[("signal", token.signal)]
        assert isinstance(fact, SignalReceived)
        return fact.value

    def _check_started(self, token: Token, results: Lookup) -> None:
        """No node starts before the commit of what it depends on, or if its result was kept."""
        for ref in (token.payload, *(each.payload for each in token.arrived)):
            if ref.kind == "result" and results(ref.node, ref.path) is None:
                raise Violation(f"{token} started before the commit of {ref}")
        mine = self._execution.journal.result(token.node, token.path)
        if mine is not None and mine.kept:
            raise Violation(f"{token} runs although its result was kept")

    def _effect(self, token: Token, lease: Lease | None, outcome: Outcome, *, once: bool) -> Outcome:
        """An effect happened in the world. Each physical call has a number, by which a lost one is known."""
        world = self._world
        world.calls += 1
        made = (token_name(token.node, token.path, self._execution.case.plan.ids), token.attempt)
        self.made[made] = self.made.get(made, 0) + 1
        if once and (self.made[made] > 1 or self._is_unknown(token)):
            raise Violation(f"the effect of {made} must not be made twice, and was")
        if lease is not None and lease.until <= world.now and world.rng.random() < 0.5:
            return Failure(Error("LOST", "the holder was cut off"))
        if isinstance(outcome, Output):
            return Output({**outcome.value, "call": world.calls}, outcome.outlet)
        return outcome

    def _is_unknown(self, token: Token) -> bool:
        """Whether nobody can know if an earlier try made the effect."""
        earlier = self._execution.journal.facts.get(("attempt", *token.key, token.attempt - 1))
        return isinstance(earlier, AttemptFailed) and earlier.failure.code == "UNKNOWN_OUTCOME"


def _was_told_to_fail(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.error.message == FAILED
