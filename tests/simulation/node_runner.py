"""Runs nodes in the simulator with the product code and counts their effects."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, NodeResult, SignalReceived
from rune.core.execution.joins import Lookup
from rune.core.execution.outcome import Failure, Outcome, Output, Suspend
from rune.core.execution.stored_value import Same
from rune.core.execution.token import Path, Token, token_name
from rune.nodes.base import NodeCall
from rune.nodes.control import wait
from rune.nodes.registry import Registry, execute, execute_async, prepare
from tests.simulation.children import start_child
from tests.simulation.effect import FAILURE_MESSAGE
from tests.simulation.execution import Execution
from tests.simulation.journal import ViolationError
from tests.simulation.store import Lease

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator


class NodeRunner:
    """Runs the tokens of one execution and counts effects per attempt."""

    def __init__(self, sim: Simulator, execution: Execution, registry: Registry) -> None:
        self._sim = sim
        self._execution = execution
        self._registry = registry
        self.call_counts: dict[tuple[str, int], int] = {}

    def run(self, token: Token, lease: Lease | None, decisions: list[Decision]) -> Outcome:
        """The outcome of a token. `decisions` are those of its inline run, which are not stored yet."""
        node = self._execution.case.plan.nodes[token.node]
        kind = self._registry[node.node.type]
        prepared = self._prepared(token, decisions)
        outcome = prepared if isinstance(prepared, Failure) else execute(kind, prepared)
        if isinstance(outcome, Output) and isinstance(prepared, NodeCall):
            outcome = self._stored(token, outcome, prepared)
        if isinstance(outcome, Suspend) and isinstance(prepared, NodeCall):
            self._check_wait(prepared.parameters, outcome)
        if node.pure:
            return outcome
        if self._sim.effects_succeed and isinstance(prepared, NodeCall) and _failed_by_parameter(outcome):
            outcome = Output({"did": prepared.parameters.key, "json": prepared.payload})
        return self._count_call(token, lease, outcome, at_most_once=node.node.at_most_once)

    def launch(self, token: Token, decisions: list[Decision]) -> Generator[None, None, Outcome]:
        """The outcome of a token whose node starts a child execution."""
        node = self._execution.case.plan.nodes[token.node]
        prepared = self._prepared(token, decisions)
        if isinstance(prepared, Failure):
            return prepared

        async def start(workflow: str, which: str | None, input: Any, waits: bool) -> str:
            return await start_child(self._sim, self._execution, token, workflow)

        prepared.launch = start
        return (yield from execute_async(self._registry[node.node.type], prepared).__await__())

    def _prepared(self, token: Token, decisions: list[Decision]) -> NodeCall[Any] | Failure:
        sim, execution = self._sim, self._execution
        plan = execution.case.plan
        uncommitted = {
            (each.node, each.path): each.fact for each in decisions if isinstance(each.fact, NodeResult)
        }

        def results(node: int, path: Path) -> NodeResult | None:
            fact = uncommitted.get((node, path))
            return fact if isinstance(fact, NodeResult) else execution.journal.result(node, path)

        self._check_started(token, results)
        name = token_name(token.node, token.path, plan.ids)
        values = execution.values(results)
        node = plan.nodes[token.node]
        return prepare(
            self._registry[node.node.type],
            node.parameters,
            values.scope(token, sim.now / 1000, name),
            now=sim.now,
            node=node.id,
            arrivals=lambda: values.arrivals(token),
            entries=lambda: values.entries(token),
            attempt=token.attempt,
            resumed=token.resumed,
            timer_id=f"wait:{name}",
            due=sim.now,
            signal=self._signal_value(token),
        )

    def _stored(self, token: Token, outcome: Output, call: NodeCall[Any]) -> Output:
        """The output as it is stored: a reference if it is the value that entered the node."""
        entry = call.scope.get("$json")
        if entry is None or outcome.value is not entry:
            return outcome
        return Output(Same(token.payload), outcome.outlet)

    def _check_wait(self, parameters: Any, outcome: Suspend) -> None:
        """A wait for some time lasts that long, counted from its own begin."""
        timed = isinstance(parameters, wait.Parameters) and parameters.resume == "time_interval"
        if timed and outcome.until is not None:
            lasts = outcome.until - self._sim.now
            if lasts != wait._interval(parameters):
                raise ViolationError(f"a wait of {parameters.amount} {parameters.unit} lasts {lasts} ms")

    def _signal_value(self, token: Token) -> Any:
        if token.signal is None:
            return None
        fact = self._execution.journal.facts[("signal", token.signal)]
        assert isinstance(fact, SignalReceived)
        return fact.value

    def _check_started(self, token: Token, results: Lookup) -> None:
        """No node starts before its inputs are committed, or if a rerun kept its result."""
        for ref in (token.payload, *(each.payload for each in token.arrived)):
            if ref.kind == "result" and results(ref.node, ref.path) is None:
                raise ViolationError(f"{token} started before the commit of {ref}")
        stored = self._execution.journal.result(token.node, token.path)
        if stored is not None and stored.kept:
            raise ViolationError(f"{token} runs although its result was kept")

    def _count_call(
        self, token: Token, lease: Lease | None, outcome: Outcome, *, at_most_once: bool
    ) -> Outcome:
        """Count a physical call and add its number to the output, so that lost results can be detected."""
        sim = self._sim
        sim.call_count += 1
        attempt = (token_name(token.node, token.path, self._execution.case.plan.ids), token.attempt)
        self.call_counts[attempt] = self.call_counts.get(attempt, 0) + 1
        if at_most_once and (self.call_counts[attempt] > 1 or self._is_unknown(token)):
            raise ViolationError(f"the at-most-once effect of {attempt} was made twice")
        if lease is not None and lease.until <= sim.now:
            raise ViolationError(f"the effect of {attempt} was begun when its lease was over")
        if isinstance(outcome, Output):
            return Output({**outcome.value, "call": sim.call_count}, outcome.outlet)
        return outcome

    def _is_unknown(self, token: Token) -> bool:
        """Whether the previous attempt ended with an unknown outcome."""
        previous = self._execution.journal.facts.get(("attempt", *token.key, token.attempt - 1))
        return isinstance(previous, AttemptFailed) and previous.failure.code == "UNKNOWN_OUTCOME"


def _failed_by_parameter(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.error.message == FAILURE_MESSAGE
