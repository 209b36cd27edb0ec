"""Refuses signals that no node can take any more, as far as the plan, the results and the state tell it for certain.

A signal may arrive long before the node that takes it. It is refused only if each node that could take it has ended or
is skipped, or if it names an item that there is not.
"""

from __future__ import annotations

from rune.core.execution.fact import NodeResult
from rune.core.execution.state import State, may_run
from rune.core.execution.token import Path, path_text
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.journal import Journal


class SignalRefusedError(RuneError):
    """No node can take the signal any more, or its item does not exist."""

    code = "UNKNOWN_SIGNAL"


def _takers(plan: Plan, name: str) -> list[int]:
    """Return the nodes that wait for signals of this name, and those of which only a run can tell the name."""
    found: list[int] = []
    for node in plan.nodes:
        if node.type.suspends:
            names = node.type.signals(node.id, node.node.parameters)
            if names is None or name in names:
                found.append(node.index)
    return found


def _ended(plan: Plan, name: str, takers: list[int], where: str = "") -> SignalRefusedError:
    listed = ", ".join(f"`{plan.ids[each]}`" for each in takers)
    return SignalRefusedError(
        f"every node that waits for the signal `{name}`{where} has ended or is skipped: {listed}"
    )


def check_open(plan: Plan, state: State, name: str) -> None:
    """Raise SignalRefusedError if every node that could take the signal has ended or is skipped, in all items."""
    takers = _takers(plan, name)
    if state.ended or state.finish is not None or any(may_run(plan, state, each) for each in takers):
        return
    raise _ended(plan, name, takers)


async def check_item(journal: Journal, execution: str, plan: Plan, name: str, path: Path) -> None:
    """Raise SignalRefusedError if the item does not exist, or if every node of it that could take the signal has a
    result."""
    takers = [each for each in _takers(plan, name) if plan.scopes.enclosing(each) == path[::2]]
    item = path_text(path, plan.ids).lstrip("/")
    if not takers:
        raise SignalRefusedError(f"no node in `{item}` can wait for a signal `{name}`", code="BAD_ITEM")
    splits = [(path[cut], path[:cut]) for cut in range(0, len(path), 2)]
    results = await journal.results(execution, [*splits, *((each, path) for each in takers)])
    for cut, split in enumerate(results[: len(splits)]):
        _check_index(plan, split, path[: 2 * cut + 2])
    if all(results[len(splits) :]):
        raise _ended(plan, name, takers, f" in `{item}`")


def _check_index(plan: Plan, split: NodeResult | None, path: Path) -> None:
    if split is None:
        return
    count = split.items or 0
    if path[-1] >= count:
        item = path_text(path, plan.ids).lstrip("/")
        raise SignalRefusedError(
            f"there is no item `{item}`: `{plan.ids[path[-2]]}` has {count:,} items, counted from 0",
            code="BAD_ITEM",
        )
