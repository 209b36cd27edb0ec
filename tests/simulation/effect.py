"""Node type `test.effect`: an effectful node that fails on the attempts and items in its parameters."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.nodes.base import NodeCall, RunnableType
from rune.nodes.registry import Registry, standard_registry
from rune.nodes.schema import Model, declare

FAILURE_MESSAGE = "failed by parameter"


class Parameters(Model, kw_only=True, frozen=True):
    key: str
    fail_attempts: int = 0
    fail_items: list[int] = msgspec.field(default_factory=list)
    code: str = "EFFECT"


TYPE = declare(
    "test.effect", Parameters, effectful=lambda parameters: True, reads_payload=lambda parameters: True
)


def run(call: NodeCall[Parameters]) -> Outcome:
    parameters = call.parameters
    index: Any = call.scope["$index"] if _is_in_split(call) else None
    if call.attempt <= parameters.fail_attempts or index in parameters.fail_items:
        return Failure(Error(parameters.code, FAILURE_MESSAGE))
    return Output({"did": parameters.key, "json": call.payload})


def _is_in_split(call: NodeCall[Parameters]) -> bool:
    try:
        call.scope["$index"]
    except KeyError:
        return False
    return True


def sim_registry() -> Registry:
    """The standard node types and `test.effect`."""
    return standard_registry().extended([RunnableType(TYPE, Parameters, run)])
