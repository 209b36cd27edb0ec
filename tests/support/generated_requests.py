"""Sends generated valid and invalid requests to every operation of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from rune.server.app import document

STREAMS = {"/api/v1/events", "/api/v1/executions/{execution}/events"}
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)

Check = Callable[..., None]
More = Callable[[int], dict[str, SearchStrategy[Any]]]


def operations() -> list[Any]:
    """All operations except the endless event streams."""
    schema = schemathesis.openapi.from_dict(document())
    known = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    return [each for each in known if each.path not in STREAMS]


def send_until(lacking: Callable[[], int], check: Check, more: More = lambda turn: {}) -> list[str]:
    """Send requests in rounds while `lacking` returns how many are missing; return the failures. Operations with few
    parameters have few different requests, so that the next round sends more to the others. `check` is called with the
    operation, the case and the values drawn from the strategies of `more`."""
    found: list[str] = []
    asked_for = [(operation, mode) for operation in operations() for mode in MODES]
    turn = 0
    while not found and (left := lacking()) > 0:
        assert asked_for, "no operation has more different requests"
        times = -(-left // len(asked_for))
        for each in list(asked_for):
            turn += 1
            try:
                count = _ask(*each, times, turn, check, more(turn))
            except Unsatisfiable:
                count = 0  # an operation without parameters has no invalid requests
            except (Exception, BaseExceptionGroup) as error:
                found.append(f"{each[1].value} {each[0].label}: {error}")
                continue
            if count < times:
                asked_for.remove(each)
    return found


def _ask(
    operation: Any,
    mode: GenerationMode,
    times: int,
    turn: int,
    check: Check,
    more: dict[str, SearchStrategy[Any]],
) -> int:
    """Send `times` requests, or fewer if there are not as many different ones; return their number."""
    count = 0

    @seed(turn)
    @settings(
        max_examples=times,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), **more)
    def one(**drawn: Any) -> None:
        nonlocal count
        count += 1
        check(operation, **drawn)

    one()
    return count
