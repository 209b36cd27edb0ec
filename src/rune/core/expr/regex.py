"""Regular expressions, on RE2 alone: its time is linear in the text, whatever the pattern."""

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

# A match costs about as much as this many plain steps.
_MATCH_STEPS = 8


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


_OPTIONS = _options()


@lru_cache(maxsize=PATTERN_CACHE_SIZE)
def compiled(pattern: str) -> Any:
    """A compiled pattern."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BudgetError(f"the pattern is too long (limit: {MAX_PATTERN_CHARS} characters)")
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0]
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ExpressionError(f"the pattern is not a regular expression: {told}") from None
    except UnicodeEncodeError:
        raise ExpressionError("the pattern holds half of a surrogate pair") from None


def _account(machine: Any, text: str, run: Evaluation | None) -> None:
    # The worst case is every state of the pattern for every character.
    if run is not None:
        run.spend(_MATCH_STEPS + (machine.programsize * (len(text) + 1024) >> 14))


def search(text: str, pattern: str, run: Evaluation | None) -> bool:
    """Whether the pattern is found anywhere in the text."""
    machine = compiled(pattern)
    _account(machine, text, run)
    try:
        return machine.search(text) is not None
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None


def find_all(text: str, pattern: str, run: Evaluation) -> list[Any]:
    """Every match: its text, its only group, or the list of its groups."""
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
