"""Results that come from signals, children and unknown outcomes, and checks of their delivery."""

from __future__ import annotations

from typing import Any

from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, NodeSuspended, SignalReceived
from rune.core.execution.token import Path, Token
from tests.simulation.children import CHILD_SIGNAL_PREFIX, child_execution_id, execution_output
from tests.simulation.execution import Execution
from tests.simulation.journal import ViolationError
from tests.simulation.oracle.model import TokenKey
from tests.simulation.simulator import Simulator
from tests.simulation.values import without_call_numbers

ExternalResults = dict[TokenKey, tuple[str, Any]]


def external_results(sim: Simulator, execution: Execution) -> ExternalResults:
    """Results by token that the oracle cannot derive, read from the facts after checking them."""
    check_signal_takers(execution)
    found: ExternalResults = {}
    for fact in execution.journal.facts.values():
        if isinstance(fact, NodeResult):
            external = _external_result(sim, execution, fact)
            if external is not None:
                found[_key(execution, fact.node, fact.path)] = external
    return found


def _key(execution: Execution, node: int, path: Path) -> TokenKey:
    ids = execution.case.plan.ids
    return ids[node], tuple((ids[path[i]], path[i + 1]) for i in range(0, len(path), 2))


def _external_result(sim: Simulator, execution: Execution, fact: NodeResult) -> tuple[str, Any] | None:
    node = execution.case.plan.nodes[fact.node]
    if fact.status == "failed" and fact.failure is not None:
        if node.type.name == "test.effect" and (fact.kept or fact.failure.code == "UNKNOWN_OUTCOME"):
            return ("failed", fact.failure.code)
        if not node.type.suspends:
            return None
        if fact.failure.code == "TIMEOUT":
            _check_deadline(execution, fact)
            return None
        if not fact.kept:
            _signal_value(sim, execution, fact)
        return ("failed", fact.failure.code)
    if fact.status != "ok" or not node.type.suspends or fact.payload is not None:
        return None
    if fact.kept:
        return ("success", without_call_numbers(execution.value(fact)))
    return ("success", without_call_numbers(_signal_value(sim, execution, fact)))


def _check_deadline(execution: Execution, fact: NodeResult) -> None:
    """A wait that timed out had passed its deadline and took no signal."""
    if fact.kept:
        return
    wait = execution.journal.facts.get(("suspend", fact.node, fact.path, fact.attempt))
    execution_timeout = (
        isinstance(wait, NodeSuspended) and wait.deadline is not None and wait.deadline <= fact.at
    )
    if not execution_timeout or fact.signal is not None:
        raise ViolationError(f"timed out before its deadline or with a signal: {fact} {wait}")


def _signal_value(sim: Simulator, execution: Execution, fact: NodeResult) -> Any:
    """The value of the signal that resumed a token, after checking its name and path."""
    signal = execution.journal.facts.get(("signal", fact.signal))
    wait = execution.journal.facts.get(("suspend", fact.node, fact.path, fact.attempt))
    if not isinstance(signal, SignalReceived) or not isinstance(wait, NodeSuspended):
        raise ViolationError(f"resumed without a signal: {fact}")
    if signal.name != wait.signal or signal.path not in (None, fact.path):
        raise ViolationError(f"{signal} does not match {wait}")
    if not signal.name.startswith(CHILD_SIGNAL_PREFIX):
        return signal.value
    return _child_output(sim, execution, fact, signal)


def _child_output(sim: Simulator, execution: Execution, fact: NodeResult, signal: SignalReceived) -> Any:
    """The output of the child, after checking that the signal carries its end."""
    token = Token(fact.node, fact.path, attempt=fact.attempt)
    child = sim.executions[child_execution_id(execution, token)]
    end = child.journal.end
    if end is None or signal.id != child.id or signal.value["status"] != end.status:
        raise ViolationError(f"{signal} is not the end of {child.id}: {end}")
    if (end.status == "completed") is not (fact.status == "ok"):
        raise ViolationError(f"{child.id} ended as {end.status}, its parent's token as {fact.status}")
    return execution_output(child, end)


def check_signal_takers(execution: Execution) -> None:
    """One signal resumes at most one wait."""
    takers: dict[str, tuple[Any, ...]] = {}
    for fact in execution.journal.facts.values():
        if isinstance(fact, NodeResult | AttemptFailed) and fact.signal is not None and not _is_kept(fact):
            taker = (fact.node, fact.path, fact.attempt)
            if takers.setdefault(fact.signal, taker) != taker:
                raise ViolationError(f"{fact.signal} was taken by {takers[fact.signal]} and by {taker}")


def _is_kept(fact: Fact) -> bool:
    return isinstance(fact, NodeResult) and fact.kept


def check_child(sim: Simulator, execution: Execution) -> None:
    """A child starts while its parent waits for it, and ends before the waiting token does."""
    link, row_numbers = execution.parent, execution.journal.row_numbers
    if link is None:
        return
    parent = sim.executions[link.id]
    if not execution.end_reported:
        raise ViolationError(f"the end of {execution.id} was not reported to its parent")
    after = [("end",), ("result", link.node, link.path), ("attempt", link.node, link.path, link.attempt)]
    for key in after:
        if key in parent.journal.row_numbers and parent.journal.row_numbers[key] < row_numbers[("start",)]:
            raise ViolationError(f"{execution.id} was started after {key} of its parent")
    result = parent.journal.result(link.node, link.path)
    if result is None or result.attempt != link.attempt:
        return
    if parent.journal.row_numbers[("result", link.node, link.path)] < row_numbers[("end",)]:
        raise ViolationError(f"{execution.id} ended after the token that waited for it: {result}")
