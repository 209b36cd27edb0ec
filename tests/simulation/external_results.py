"""What the world said to an execution, and whether it was said as promised: signals once, children to their parents."""

from __future__ import annotations

from typing import Any

from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, NodeSuspended, SignalReceived
from rune.core.execution.token import Path, Token
from tests.simulation.execution import Execution
from tests.simulation.family import SIGNAL, child_of, output
from tests.simulation.journal import Violation
from tests.simulation.oracle.model import TokenKey
from tests.simulation.values import plain
from tests.simulation.world import Realm

Answers = dict[TokenKey, tuple[str, Any]]


def answers(world: Realm, execution: Execution) -> Answers:
    """By token, what the oracle cannot know: it is taken from the facts, once these are what they must be."""
    check_taken(execution)
    found: Answers = {}
    for fact in execution.journal.facts.values():
        if isinstance(fact, NodeResult):
            answer = _answer(world, execution, fact)
            if answer is not None:
                found[_key(execution, fact.node, fact.path)] = answer
    return found


def _key(execution: Execution, node: int, path: Path) -> TokenKey:
    ids = execution.case.plan.ids
    return ids[node], tuple((ids[path[i]], path[i + 1]) for i in range(0, len(path), 2))


def _answer(world: Realm, execution: Execution, fact: NodeResult) -> tuple[str, Any] | None:
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
            _heard(world, execution, fact)
        return ("failed", fact.failure.code)
    if fact.status != "ok" or not node.type.suspends or fact.payload is not None:
        return None
    if fact.kept:
        return ("success", plain(fact.value))
    return ("success", plain(_heard(world, execution, fact)))


def _check_deadline(execution: Execution, fact: NodeResult) -> None:
    """A wait that was given up had its time, and no signal."""
    if fact.kept:
        return
    wait = execution.journal.facts.get(("suspend", fact.node, fact.path, fact.attempt))
    in_time = isinstance(wait, NodeSuspended) and wait.deadline is not None and wait.deadline <= fact.at
    if not in_time or fact.signal is not None:
        raise Violation(f"given up, but not after a wait in vain: {fact} {wait}")


def _heard(world: Realm, execution: Execution, fact: NodeResult) -> Any:
    """What the signal said that resumed a token; it must have been meant for it."""
    signal = execution.journal.facts.get(("signal", fact.signal))
    wait = execution.journal.facts.get(("suspend", fact.node, fact.path, fact.attempt))
    if not isinstance(signal, SignalReceived) or not isinstance(wait, NodeSuspended):
        raise Violation(f"resumed by nothing: {fact}")
    if signal.name != wait.signal or signal.path not in (None, fact.path):
        raise Violation(f"{signal} was not meant for {wait}")
    if not signal.name.startswith(SIGNAL):
        return signal.value
    return _child_said(world, execution, fact, signal)


def _child_said(world: Realm, execution: Execution, fact: NodeResult, signal: SignalReceived) -> Any:
    """The end of the token's own child, exactly."""
    token = Token(fact.node, fact.path, attempt=fact.attempt)
    child = world.executions[child_of(execution, token)]
    end = child.journal.end
    if end is None or signal.id != child.id or signal.value["status"] != end.status:
        raise Violation(f"{signal} is not the end of {child.id}: {end}")
    if (end.status == "completed") is not (fact.status == "ok"):
        raise Violation(f"{child.id} ended as {end.status}, its parent's token as {fact.status}")
    return output(child, end)


def check_taken(execution: Execution) -> None:
    """One signal resumes one wait."""
    takers: dict[str, tuple[Any, ...]] = {}
    for fact in execution.journal.facts.values():
        if isinstance(fact, NodeResult | AttemptFailed) and fact.signal is not None and not _is_kept(fact):
            mine = (fact.node, fact.path, fact.attempt)
            if takers.setdefault(fact.signal, mine) != mine:
                raise Violation(f"{fact.signal} was taken by {takers[fact.signal]} and by {mine}")


def _is_kept(fact: Fact) -> bool:
    return isinstance(fact, NodeResult) and fact.kept


def check_family(world: Realm, execution: Execution) -> None:
    """A child starts while its parent runs and waits, and ends before the token that gave it up."""
    link, order = execution.parent, execution.journal.order
    if link is None:
        return
    parent = world.executions[link.id]
    if not execution.told:
        raise Violation(f"nobody was told of the end of {execution.id}")
    after = [("end",), ("result", link.node, link.path), ("attempt", link.node, link.path, link.attempt)]
    for key in after:
        if key in parent.journal.order and parent.journal.order[key] < order[("start",)]:
            raise Violation(f"{execution.id} was started after {key} of its parent")
    result = parent.journal.result(link.node, link.path)
    if result is None or result.attempt != link.attempt:
        return
    if parent.journal.order[("result", link.node, link.path)] < order[("end",)]:
        raise Violation(f"{execution.id} ended after the token that waited for it: {result}")
