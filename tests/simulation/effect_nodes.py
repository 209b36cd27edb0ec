"""Module for `--nodes` that provides `test.effect`."""

from __future__ import annotations

from rune.core.execution.outcome import Outcome
from rune.nodes import custom
from rune.nodes.base import NodeCall, RunnableType
from tests.simulation.effect import TYPE, Parameters, run


def effect(call: NodeCall[Parameters]) -> Outcome:
    return run(call)


# The decorator derives parameters from function arguments; this node needs the scope, so its type is set directly.
setattr(effect, custom._KIND, RunnableType(TYPE, Parameters, effect))
