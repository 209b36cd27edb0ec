"""Whether what an engine did agrees with what the oracle expects."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.oracle.choices import Choices, Expected, Result
from tests.simulation.oracle.evaluate import Evaluation
from tests.simulation.oracle.expr import ANY, MISSING, same
from tests.simulation.oracle.model import Model, TokenKey


def agree(expected: Any, actual: Any) -> bool:
    """JSON equality in which an expected error object asks for its code only, and ANY for nothing."""
    if expected is ANY:
        return True
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return False
        if expected.keys() == {"code"}:
            return agree(expected["code"], actual.get("code", MISSING))
        names = expected.keys() | actual.keys()
        return all(agree(expected.get(n, MISSING), actual.get(n, MISSING)) for n in names)
    if isinstance(expected, list):
        return isinstance(actual, list) and len(expected) == len(actual) and all(map(agree, expected, actual))
    if expected is MISSING or actual is MISSING:
        return expected is actual
    return same(expected, actual)


def differences(expected: Expected, actual: Mapping[TokenKey, Result]) -> list[str]:
    """Each token on which the engine's results and the expected ones part.

    Where the execution ended early, missing tokens are right and those behind a halting node are not asked.
    """
    early = bool(expected.halting)
    found = []
    for key, (status, value) in expected.results.items():
        if early and (key not in actual or key[0] in expected.shadow):
            continue
        seen = actual.get(key)
        if seen is None:
            found.append(f"{key}: expected {status}, found nothing")
        elif seen[0] != status:
            found.append(f"{key}: expected {status}, found {seen[0]}")
        elif status in ("success", "failed") and not agree(value, seen[1]):
            found.append(f"{key}: expected {value!r}, found {seen[1]!r}")
    for key in actual.keys() - expected.results.keys() - expected.undecided:
        if not (early and key[0] in expected.shadow):
            found.append(f"{key}: unexpected {actual[key][0]}")
    return found


def free_choices(model: Model, start: Any, seed: int) -> Choices:
    """Legal choices made by chance, for when no engine is there to make them."""
    rng = random.Random(seed)
    opened: dict[TokenKey, tuple[str, ...]] = {}

    def pick(key: TokenKey, live: Sequence[str], quorum: int) -> tuple[str, ...]:
        chosen = set(rng.sample(list(live), quorum))
        opened[key] = tuple(edge for edge in live if edge in chosen)
        return opened[key]

    Evaluation(model, start, Choices(), pick).run()
    return Choices(opened)
