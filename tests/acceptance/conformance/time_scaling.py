"""Repeats cases with deadlines at lower speed if the machine was too slow for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.step_runner import LateError

FACTORS = (1, 4, 16, 64)
MAX_SCALED_S = 3.0  # longer times are not waited for
SCALED_FIELDS = ("amount", "timeout", "initial_delay", "s", "within")
MAX_STEP_S = 4  # at factor 1


async def run_in_time(case: Case, run: Callable[[Case], Awaitable[None]]) -> None:
    """Run a case at the smallest factor at which no step is late."""
    late: LateError | None = None
    for factor in FACTORS:
        try:
            return await run(scaled(case, factor))
        except LateError as error:
            late = error
    raise AssertionError(f"{case.name} was late at every factor: {late}") from late


def scaled(case: Case, factor: int) -> Case:
    """The case under another name, with its short times multiplied by the factor and its expectations unchanged."""
    if factor == 1:
        return case
    return dataclasses.replace(
        case,
        name=f"{case.name}-{factor}",
        document=_scaled(case.document, factor),
        workflows=tuple(_scaled(each, factor) for each in case.workflows),
        steps=tuple(_step(each, factor) for each in case.steps),
        timeout_s=case.timeout_s + MAX_STEP_S * factor,
    )


def is_timed(case: Case) -> bool:
    """Whether the case has a step with a deadline."""
    return any("within" in step for step in case.steps)


def _step(step: Mapping[str, Any], factor: int) -> dict[str, Any]:
    slow: dict[str, Any] = _scaled({key: inner for key, inner in step.items() if key != "expect"}, factor)
    return slow | {key: step[key] for key in step.keys() & {"expect"}}


def _scaled(value: Any, factor: int) -> Any:
    if isinstance(value, list):
        return [_scaled(inner, factor) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _scaled(inner, factor) for key, inner in value.items()}
    for key in value.keys() & SCALED_FIELDS:
        time = value[key]
        if isinstance(time, int | float) and 0 < time <= MAX_SCALED_S and "unit" not in value:
            found[key] = time * factor
    return found
