"""Ending: whether decisions that are not applied yet will end the execution, where that is certain from here."""

from __future__ import annotations

from collections.abc import Sequence

from rune.core.effect import Decision, Emit, Finish, Skip
from rune.core.fact import Result
from rune.core.lineage import ROOT
from rune.core.state import State

COMPLETED = Finish("completed")


def certain_end(state: State, decisions: Sequence[Decision]) -> Finish | None:
    """The end that applying these decisions brings, if nothing else of the execution is under way and nothing of them
    stays open. None means: apply them and see. Knowing it, the terminal row goes along with the last facts."""
    root = state.scopes.get(ROOT)
    if root is None or root.count != 1 or len(state.scopes) != 1 or state.failures or state.finish is not None:
        return None
    if decisions[0].node not in root.live:
        return None
    decided = {each.node for each in decisions}
    for decision in decisions:
        if type(decision.fact) is not Result or decision.path:
            return None
        for effect in decision.effects:
            if type(effect) is not Skip and not (type(effect) is Emit and effect.node in decided):
                return None
    return COMPLETED
