"""Regular expressions on RE2, whose time is linear in the text for every pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from rune.core.expr.budget import (
    MAX_PATTERN_CHARS,
    PATTERN_CACHE_SIZE,
    PATTERN_MEMORY_BYTES,
    BudgetError,
    Evaluation,
    ExpressionError,
)

# The cost of a match in steps.
_MATCH_STEPS = 8


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


_OPTIONS = _options()


@lru_cache(maxsize=PATTERN_CACHE_SIZE)
def compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BudgetError(f"the pattern is too long (limit: {MAX_PATTERN_CHARS} characters)")
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ExpressionError(f"the pattern is not a regular expression: {text}") from None
    except UnicodeEncodeError:
        raise ExpressionError("the pattern holds half of a surrogate pair") from None


def _account(machine: Any, text: str, run: Evaluation | None) -> None:
    # In the worst case RE2 visits every state of the pattern for every character.
    if run is not None:
        run.spend(_MATCH_STEPS + (machine.programsize * (len(text) + 1024) >> 14))


def search(text: str, pattern: str, run: Evaluation | None) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    machine = compiled(pattern)
    _account(machine, text, run)
    try:
        return machine.search(text) is not None
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None


def find_all(text: str, pattern: str, run: Evaluation) -> list[Any]:
    """Return every match: its text, its only group, or the list of its groups."""
    machine = compiled(pattern)
    _account(machine, text, run)
    found: list[Any] = []
    try:
        for match in machine.finditer(text):
            run.spend(_MATCH_STEPS >> 2)
            groups = match.groups()
            for each in groups or (match.group(),):
                run.build(len(each or ""))
            found.append(run.new_list(list(groups)) if len(groups) > 1 else (groups or (match.group(),))[0])
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None
    return run.new_list(found)
