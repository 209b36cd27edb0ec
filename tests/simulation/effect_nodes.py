"""`test.effect` as a module that `--nodes` can name."""

from __future__ import annotations

from rune.core.execution.outcome import Outcome
from rune.nodes import custom
from rune.nodes.base import NodeCall, RunnableType
from tests.simulation.effect import TYPE, Parameters, run


def effect(call: NodeCall[Parameters]) -> Outcome:
    """The node that fails when told to."""
    return run(call)


# The decorator makes parameters of a function's arguments; this node needs the scope, so its kind is put on by hand.
setattr(effect, custom._KIND, RunnableType(TYPE, Parameters, effect))
