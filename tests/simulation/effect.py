"""`test.effect`: a node with an outside effect, which fails when told to."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.nodes.base import NodeCall, RunnableType
from rune.nodes.registry import Registry, standard_registry
from rune.nodes.schema import Model, declare

FAILED = "told to fail"


class Parameters(Model, kw_only=True, frozen=True):
    key: str
    fail_attempts: int = 0
    fail_items: list[int] = msgspec.field(default_factory=list)
    code: str = "EFFECT"


TYPE = declare(
    "test.effect", Parameters, effectful=lambda parameters: True, reads_payload=lambda parameters: True
)


def run(call: NodeCall[Parameters]) -> Outcome:
    asked = call.parameters
    index: Any = call.scope["$index"] if _inside(call) else None
    if call.attempt <= asked.fail_attempts or index in asked.fail_items:
        return Failure(Error(asked.code, FAILED))
    return Output({"did": asked.key, "json": call.payload})


def _inside(call: NodeCall[Parameters]) -> bool:
    try:
        call.scope["$index"]
    except KeyError:
        return False
    return True


def sim_registry() -> Registry:
    """Every node that comes with Rune, and this one."""
    return standard_registry().extended([RunnableType(TYPE, Parameters, run)])
