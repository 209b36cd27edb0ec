"""Cases that race the clock, at a pace that a busy machine keeps up with: every short time in them is longer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.conformance.case import Case

FACTOR = 8
SHORT = 3.0  # s: what lasts longer is not waited for
TIMES = {"amount": 1, "timeout": 1, "initial_delay": 1, "s": 1, "delay_ms": 1000}  # how many make a second


def slowed(case: Case) -> Case:
    """The same case, slower; what is expected of it stays."""
    steps = tuple(
        {key: inner if key == "expect" else _slowed(inner) for key, inner in step.items()}
        for step in case.steps
    )
    return dataclasses.replace(
        case,
        document=_slowed(case.document),
        workflows=tuple(map(_slowed, case.workflows)),
        steps=steps,
        http=tuple(map(_slowed, case.http)),
        timeout_s=2 * case.timeout_s,
    )


def is_timed(case: Case) -> bool:
    """Whether it has a short time in it."""
    slow = slowed(case)
    return (slow.document, slow.workflows, slow.steps) != (case.document, case.workflows, case.steps)


def _slowed(value: Any) -> Any:
    if isinstance(value, list):
        return [_slowed(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _slowed(inner) for key, inner in value.items()}
    for key in TIMES.keys() & value.keys():
        time = value[key]
        if isinstance(time, int | float) and 0 < time <= SHORT * TIMES[key] and "unit" not in value:
            found[key] = time * FACTOR
    return found
