"""Refuses signals that no node can take any more, as far as the plan, the results and the state tell it for certain,
and values that the node which takes them does not accept.

A signal may arrive long before the node that takes it. It is refused only if each node that could take it has ended or
is skipped, or if it names an item that there is not. Its value is checked if one node waits for it or only one can take
it; any other is checked by the node that takes it.
"""

from __future__ import annotations

from rune.core.execution.fact import NodeResult
from rune.core.execution.state import State, may_run
from rune.core.execution.token import Path, path_text
from rune.core.plan.model import Plan
from rune.documents.signal_form import check_signal_value
from rune.errors import InvalidDocumentError, RuneError
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


def open_takers(plan: Plan, state: State, name: str) -> list[int]:
    """Return the nodes that can take the signal. Raise SignalRefusedError if each has ended or is skipped, in all
    items."""
    takers = _takers(plan, name)
    if state.ended or state.finish is not None:
        return takers
    running = [each for each in takers if may_run(plan, state, each)]
    if not running:
        raise _ended(plan, name, takers)
    return running


async def open_takers_of_item(
    journal: Journal, execution: str, plan: Plan, name: str, path: Path
) -> list[int]:
    """Return the nodes that can take the signal in an item. Raise SignalRefusedError if the item does not exist, or if
    each has a result."""
    takers = [each for each in _takers(plan, name) if plan.scopes.enclosing(each) == path[::2]]
    item = path_text(path, plan.ids).lstrip("/")
    if not takers:
        raise SignalRefusedError(f"no node in `{item}` can wait for a signal `{name}`", code="BAD_ITEM")
    splits = [(path[cut], path[:cut]) for cut in range(0, len(path), 2)]
    results = await journal.results(execution, [*splits, *((each, path) for each in takers)])
    for cut, split in enumerate(results[: len(splits)]):
        _check_index(plan, split, path[: 2 * cut + 2])
    running = [taker for taker, result in zip(takers, results[len(splits) :], strict=True) if result is None]
    if not running:
        raise _ended(plan, name, takers, f" in `{item}`")
    return running


def check_accepted(plan: Plan, takers: list[int], value: object) -> None:
    """Raise InvalidDocumentError if only one node takes the signal and does not accept its value."""
    if len(takers) == 1:
        problems = check_signal_value(plan.nodes[takers[0]].node.parameters, value)
        if problems:
            raise InvalidDocumentError(tuple(problems))


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
