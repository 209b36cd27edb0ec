"""Parent and child executions. Every `yield` lies between two store operations."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, SignalReceived
from rune.core.execution.outcome import Error
from rune.core.execution.scope import failure_value
from rune.core.execution.token import Token, child_id, token_name
from tests.simulation.commands import send_signal
from tests.simulation.execution import Execution, ParentLink, create_execution
from tests.simulation.journal import AlreadyEndedError, Outage

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

PARENT_ENDED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the execution that waited for this one has ended")
)
CHILD_SIGNAL_PREFIX = "child:"


class CrashPoint:
    """A point in a coroutine at which its worker may crash."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def child_execution_id(execution: Execution, token: Token) -> str:
    name = token_name(token.node, token.path, execution.case.plan.ids)
    return child_id(execution.id, name, token.attempt)


async def start_child(sim: Simulator, execution: Execution, token: Token, workflow: str) -> str:
    """Start the child of an attempt, or return the one that exists."""
    child = child_execution_id(execution, token)
    await CrashPoint()
    _create_child(sim, execution, token, child, workflow)
    await CrashPoint()
    _, sent = sim.executions[child].store.load(sim.now)
    await CrashPoint()
    for each in sent:
        sim.send(sim.executions[child], each)
    return child


def _create_child(sim: Simulator, parent: Execution, token: Token, child: str, workflow: str) -> None:
    """Create the child in one transaction that requires a running parent and an open attempt."""
    if sim.outages.journal:
        raise Outage
    if child in sim.executions:
        return
    if parent.journal.end is not None or _has_attempt_ended(parent, token) or child in sim.refused_children:
        raise AlreadyEndedError
    link = ParentLink(parent.id, token.node, token.path, token.attempt)
    execution = create_execution(child, parent.case.children[workflow], sim.outages, parent=link)
    execution.journal.record([ExecutionStarted(sim.now)])
    sim.register(execution)


def _has_attempt_ended(parent: Execution, token: Token) -> bool:
    """Whether the attempt that starts the child has ended, so that a stale worker is still running it."""
    facts = parent.journal.facts
    return ("result", *token.key) in facts or ("attempt", *token.key, token.attempt) in facts


def cancel_child_of(sim: Simulator, execution: Execution, token: Token) -> Iterator[None]:
    """Cancel the child of an attempt before the attempt ends.

    A child that does not exist yet is refused from now on, because a stale worker may still try to start it.
    """
    name = child_execution_id(execution, token)
    if sim.outages.journal:
        raise Outage
    if name in sim.executions:
        yield from cancel_child(sim, sim.executions[name])
    else:
        sim.refused_children.add(name)


def cancel_child(sim: Simulator, child: Execution) -> Iterator[None]:
    if child.journal.end is None:
        yield from finish_execution(sim, child, PARENT_ENDED)


def finish_execution(sim: Simulator, execution: Execution, how: FinishExecution) -> Iterator[None]:
    """Write the terminal row, or use the stored one."""
    row = execution.journal.end
    if row is None:
        (row,) = execution.journal.record([ExecutionEnded(sim.now, how.status, how.error)])  # type: ignore[assignment]
    yield
    assert isinstance(row, ExecutionEnded)
    execution.store.close(row, sim.now)
    yield
    yield from propagate_end(sim, execution, row)


def propagate_end(sim: Simulator, execution: Execution, row: ExecutionEnded) -> Iterator[None]:
    """After the terminal row: cancel the children and send the end to the parent."""
    for child in [each for each in sim.executions.values() if _is_unreported_child(each, execution)]:
        yield from cancel_child(sim, child)
    if execution.parent is not None and not execution.end_reported:
        yield
        value = {
            "execution_id": execution.id,
            "status": row.status,
            "output": execution_output(execution, row),
        }
        value["error"] = {"code": row.error.code, "message": row.error.message} if row.error else None
        signal = SignalReceived(
            row.at, execution.id, f"{CHILD_SIGNAL_PREFIX}{execution.id}", execution.parent.path, value
        )
        with suppress(AlreadyEndedError):
            yield from send_signal(sim, sim.executions[execution.parent.id], signal)
        yield
        execution.end_reported = True


def _is_unreported_child(each: Execution, of: Execution) -> bool:
    return each.parent is not None and each.parent.id == of.id and not each.end_reported


def execution_output(execution: Execution, row: ExecutionEnded) -> Any:
    """The value of the output node that ran, or the outputs of the leaf nodes."""
    if row.status != "completed":
        return None
    plan = execution.case.plan
    ran: dict[int, Any] = {}
    for node in (*plan.outputs, *plan.leaves):
        result = execution.journal.result(node, ())
        if node in plan.triggers:
            ran[node] = execution.case.start
        elif result is not None and result.status in ("ok", "failed"):
            ran[node] = failure_value(result) if result.status == "failed" else execution.value(result)
    if plan.outputs:
        return next((ran[node] for node in plan.outputs if node in ran), None)
    return {plan.ids[node]: ran[node] for node in plan.leaves if node in ran}


def unreported_children(sim: Simulator) -> list[Execution]:
    """Children whose end, or whose parent's end, was not propagated yet."""
    return [
        each for each in sim.executions.values() if each.parent is not None and _is_end_unreported(sim, each)
    ]


def _is_end_unreported(sim: Simulator, each: Execution) -> bool:
    assert each.parent is not None
    over = each.journal.end is not None or sim.executions[each.parent.id].journal.end is not None
    return over and not each.end_reported


def recover_children(sim: Simulator) -> Iterator[None]:
    """Propagate ends that a crashed process did not."""
    for each in unreported_children(sim):
        row = each.journal.end
        if row is None:
            yield from finish_execution(sim, each, PARENT_ENDED)
        else:
            yield from propagate_end(sim, each, row)
