"""Compares the results of an engine with the expectation of the oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.oracle.choices import Choices, Expected, Result
from tests.simulation.oracle.evaluate import Evaluation
from tests.simulation.oracle.expr import ANY, MISSING, json_equal
from tests.simulation.oracle.model import Model, TokenKey


def matches(expected: Any, actual: Any) -> bool:
    """JSON equality; of expected error objects only the code is compared, and ANY matches everything."""
    if expected is ANY:
        return True
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return False
        if expected.keys() == {"code"}:
            return matches(expected["code"], actual.get("code", MISSING))
        names = expected.keys() | actual.keys()
        return all(matches(expected.get(n, MISSING), actual.get(n, MISSING)) for n in names)
    if isinstance(expected, list):
        return (
            isinstance(actual, list) and len(expected) == len(actual) and all(map(matches, expected, actual))
        )
    if expected is MISSING or actual is MISSING:
        return expected is actual
    return json_equal(expected, actual)


def differences(expected: Expected, actual: Mapping[TokenKey, Result]) -> list[str]:
    """The tokens whose actual and expected results differ.

    If the execution ended early, missing tokens and tokens downstream of a halting node are ignored.
    """
    early = bool(expected.halting)
    found = []
    for key, (status, value) in expected.results.items():
        if early and (key not in actual or key[0] in expected.downstream):
            continue
        result = actual.get(key)
        if result is None:
            found.append(f"{key}: expected {status}, found nothing")
        elif result[0] != status:
            found.append(f"{key}: expected {status}, found {result[0]}")
        elif status in ("success", "failed") and not matches(value, result[1]):
            found.append(f"{key}: expected {value!r}, found {result[1]!r}")
    for key in actual.keys() - expected.results.keys() - expected.undecided:
        if not (early and key[0] in expected.downstream):
            found.append(f"{key}: unexpected {actual[key][0]}")
    return found


def random_choices(model: Model, start: Any, seed: int) -> Choices:
    """Random legal choices, for evaluation without an engine."""
    rng = random.Random(seed)
    opened: dict[TokenKey, tuple[str, ...]] = {}

    def pick(key: TokenKey, live: Sequence[str], quorum: int) -> tuple[str, ...]:
        chosen = set(rng.sample(list(live), quorum))
        opened[key] = tuple(edge for edge in live if edge in chosen)
        return opened[key]

    Evaluation(model, start, Choices(), pick).run()
    return Choices(opened)
