"""Cases that race the clock. One that came too late says nothing of the engine: it is walked again, slower."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.walk import Late

PACES = (1, 4, 16, 64)
SHORT = 3.0  # s: what lasts longer is not waited for
TIMES = ("amount", "timeout", "initial_delay", "s", "within")
LONGEST = 4  # s that a step of a case takes at its own pace, at most


async def in_time(case: Case, walk: Callable[[Case], Awaitable[None]]) -> None:
    """Walk a case at the first pace that this machine keeps up with."""
    late: Late | None = None
    for pace in PACES:
        try:
            return await walk(slowed(case, pace))
        except Late as told:
            late = told
    raise AssertionError(f"{case.name} came too late at every pace: {late}") from late


def slowed(case: Case, pace: int) -> Case:
    """The same case, so many times slower, under another name; what is expected of it stays."""
    if pace == 1:
        return case
    return dataclasses.replace(
        case,
        name=f"{case.name}-{pace}",
        document=_slowed(case.document, pace),
        workflows=tuple(_slowed(each, pace) for each in case.workflows),
        steps=tuple(_step(each, pace) for each in case.steps),
        timeout_s=case.timeout_s + LONGEST * pace,
    )


def is_raced(case: Case) -> bool:
    """Whether something in it has to happen in time."""
    return any("within" in step for step in case.steps)


def _step(step: Mapping[str, Any], pace: int) -> dict[str, Any]:
    slow: dict[str, Any] = _slowed({key: inner for key, inner in step.items() if key != "expect"}, pace)
    return slow | {key: step[key] for key in step.keys() & {"expect"}}


def _slowed(value: Any, pace: int) -> Any:
    if isinstance(value, list):
        return [_slowed(inner, pace) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _slowed(inner, pace) for key, inner in value.items()}
    for key in value.keys() & TIMES:
        time = value[key]
        if isinstance(time, int | float) and 0 < time <= SHORT and "unit" not in value:
            found[key] = time * pace
    return found
