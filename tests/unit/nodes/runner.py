"""Runs one node with checked, compiled and resolved parameters, as the engine does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.core.expr import Names
from rune.core.plan.model import compile_parameters
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
    **options: Unpack[CallOptions],
) -> Outcome:
    kind = standard_registry()[type]
    raw = parameters or {}
    problems = kind.type.check(raw, lambda text: "$" in text or "{{" in text)
    assert not problems, problems
    names = {"$json": payload, "$trigger": trigger, **(scope or {})}
    return run_node(kind, compile_parameters(kind.type, raw, NAMES), names, now=NOW, **options)


def output(outcome: Outcome) -> Any:
    """The value of a success."""
    assert isinstance(outcome, Output), outcome
    return outcome.value


def error(outcome: Outcome) -> Error:
    """The error of a failure."""
    assert isinstance(outcome, Failure), outcome
    return outcome.error
