"""Runs one node as the engine would: parameters checked, compiled, resolved, typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.core.expr import Names
from rune.core.plan.parameters import compile_parameters
from rune.nodes.registry import CallOptions, run_node, standard_registry

NAMES = Names(frozenset({"fetch", "gone"}), {})
NOW = 1_700_000_000_000


def run(
    type: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    payload: Any = None,
    trigger: Any = None,
    scope: Mapping[str, Any] | None = None,
    **facts: Unpack[CallOptions],
) -> Outcome:
    """The outcome of one run."""
    kind = standard_registry()[type]
    given = parameters or {}
    problems = kind.type.check(given, lambda text: "$" in text or "{{" in text)
    assert not problems, problems
    seen = {"$json": payload, "$trigger": trigger, **(scope or {})}
    return run_node(kind, compile_parameters(kind.type, given, NAMES), seen, now=NOW, **facts)


def output(outcome: Outcome) -> Any:
    """The value of a success."""
    assert isinstance(outcome, Output), outcome
    return outcome.value


def error(outcome: Outcome) -> Error:
    """The error of a failure."""
    assert isinstance(outcome, Failure), outcome
    return outcome.error
