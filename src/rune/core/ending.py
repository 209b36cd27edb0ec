"""Foresight: what decisions that are not applied yet will lead to, where that is certain from here.

Knowing it, the last fact, the terminal row and the time of the next waking go into one act of the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rune.core.effect import Decision, Emit, Finish, Skip
from rune.core.fact import Result, Suspension
from rune.core.lineage import ROOT
from rune.core.state import State

COMPLETED = Finish("completed")


def certain_end(state: State, decisions: Sequence[Decision]) -> Finish | None:
    """The end that applying these decisions brings, if nothing else of the execution is under way and nothing of them
    stays open. None means: apply them and see."""
    if not _is_all_there_is(state, decisions) or state.failures:
        return None
    return end_of_one(decisions)


def end_of_one(decisions: Sequence[Decision]) -> Finish | None:
    """The same where the token that they begin with is known to be all there is, and nothing has failed."""
    return COMPLETED if type(decisions[-1].fact) is Result and _stays_inside(decisions) else None


def certain_sleep(state: State, decisions: Sequence[Decision]) -> int | None:
    """Until when the execution can do nothing once these decisions are applied; None where that is not certain."""
    last = decisions[-1].fact
    if type(last) is not Suspension or last.signal is not None or not _is_all_there_is(state, decisions):
        return None
    return last.due if _stays_inside(decisions) else None


def _is_all_there_is(state: State, decisions: Sequence[Decision]) -> bool:
    root = state.scopes.get(ROOT)
    if root is None or root.count != 1 or len(state.scopes) != 1 or state.finish is not None:
        return False
    return decisions[0].node in root.live


def _stays_inside(decisions: Sequence[Decision]) -> bool:
    """Whether everything that the decisions emit is decided by them too, and the last alone may be something else
    than a result."""
    decided = {each.node for each in decisions}
    for decision in decisions:
        if decision.path or (type(decision.fact) is not Result and decision is not decisions[-1]):
            return False
        for effect in decision.effects:
            if type(effect) is not Skip and not (type(effect) is Emit and effect.node in decided):
                return False
    return True
