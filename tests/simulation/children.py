"""Parents and children in the simulated world. Every `yield` lies between two acts on stores."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, SignalReceived
from rune.core.execution.outcome import Error
from rune.core.execution.scope import failure_value
from rune.core.execution.token import Token, token_name
from rune.ids import child_id
from tests.simulation.desk import deliver
from tests.simulation.execution import Execution, Parent, accept
from tests.simulation.journal import Ended, Outage

if TYPE_CHECKING:
    from tests.simulation.world import Realm

ABANDONED = FinishExecution(
    "cancelled", Error("PARENT_ENDED", "the execution that waited for this one has ended")
)
SIGNAL = "child:"


class Step:
    """A place in a coroutine where its worker may die."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def child_of(execution: Execution, token: Token) -> str:
    name = token_name(token.node, token.path, execution.case.plan.ids)
    return child_id(execution.id, name, token.attempt)


async def launch(world: Realm, execution: Execution, token: Token, workflow: str) -> str:
    """Start the child of an attempt; if it was started before, that is the one."""
    child = child_of(execution, token)
    await Step()
    _accept_child(world, execution, token, child, workflow)
    await Step()
    _, sent = world.executions[child].store.ready(world.now)
    await Step()
    for each in sent:
        world.send(world.executions[child], each)
    return child


def _accept_child(world: Realm, parent: Execution, token: Token, child: str, workflow: str) -> None:
    """One transaction: the parent must be found running, and the token without its end."""
    if world.weather.journal:
        raise Outage
    if child in world.executions:
        return
    if parent.journal.end is not None or _is_over(parent, token) or child in world.refused:
        raise Ended
    link = Parent(parent.id, token.node, token.path, token.attempt)
    execution = accept(child, parent.case.children[workflow], world.weather, parent=link)
    execution.journal.record([ExecutionStarted(world.now)])
    world.admit(execution)


def _is_over(parent: Execution, token: Token) -> bool:
    """Whether the try that wants a child has ended: somebody slow is still at it."""
    facts = parent.journal.facts
    return ("result", *token.key) in facts or ("attempt", *token.key, token.attempt) in facts


def abandon(world: Realm, execution: Execution, token: Token) -> Iterator[None]:
    """The token that waits will never look at its child again: the child ends before the token does. One that is not
    there is refused from now on: somebody slow may still be about to start it."""
    name = child_of(execution, token)
    if world.weather.journal:
        raise Outage
    if name in world.executions:
        yield from cancel_child(world, world.executions[name])
    else:
        world.refused.add(name)


def cancel_child(world: Realm, child: Execution) -> Iterator[None]:
    if child.journal.end is None:
        yield from finish(world, child, ABANDONED)


def finish(world: Realm, execution: Execution, how: FinishExecution) -> Iterator[None]:
    """Write the terminal row; whoever comes second finds it."""
    row = execution.journal.end
    if row is None:
        (row,) = execution.journal.record([ExecutionEnded(world.now, how.status, how.error)])  # type: ignore[assignment]
    yield
    assert isinstance(row, ExecutionEnded)
    execution.store.close(row, world.now)
    yield
    yield from ended(world, execution, row)


def ended(world: Realm, execution: Execution, row: ExecutionEnded) -> Iterator[None]:
    """An execution has its terminal row: those it waits for end too, and whoever waits for it is told."""
    for child in [each for each in world.executions.values() if _is_child(each, execution)]:
        yield from cancel_child(world, child)
    if execution.parent is not None and not execution.told:
        yield
        said = {"execution_id": execution.id, "status": row.status, "output": output(execution, row)}
        said["error"] = {"code": row.error.code, "message": row.error.message} if row.error else None
        signal = SignalReceived(row.at, execution.id, f"{SIGNAL}{execution.id}", execution.parent.path, said)
        with suppress(Ended):
            yield from deliver(world, world.executions[execution.parent.id], signal)
        yield
        execution.told = True


def _is_child(each: Execution, of: Execution) -> bool:
    return each.parent is not None and each.parent.id == of.id and not each.told


def output(execution: Execution, row: ExecutionEnded) -> Any:
    """The value of the output node that ran, or the outputs of the leaves."""
    if row.status != "completed":
        return None
    plan = execution.case.plan
    ran: dict[int, Any] = {}
    for node in (*plan.outputs, *plan.leaves):
        result = execution.journal.result(node, ())
        if node in plan.triggers:
            ran[node] = execution.case.start
        elif result is not None and result.status in ("ok", "failed"):
            ran[node] = failure_value(result) if result.status == "failed" else result.value
    if plan.outputs:
        return next((ran[node] for node in plan.outputs if node in ran), None)
    return {plan.ids[node]: ran[node] for node in plan.leaves if node in ran}


def untold(world: Realm) -> list[Execution]:
    """Children that have ended without their parent knowing, and those whose parent has ended without them."""
    return [each for each in world.executions.values() if each.parent is not None and _is_owed(world, each)]


def _is_owed(world: Realm, each: Execution) -> bool:
    assert each.parent is not None
    over = each.journal.end is not None or world.executions[each.parent.id].journal.end is not None
    return over and not each.told


def recover(world: Realm) -> Iterator[None]:
    """What a process that died left undone between parents and children."""
    for each in untold(world):
        row = each.journal.end
        if row is None:
            yield from finish(world, each, ABANDONED)
        else:
            yield from ended(world, each, row)
