"""Regular expressions on RE2, whose time is linear in the text for every pattern.

RE2 releases the interpreter while it compiles and matches, but neither can be stopped. So their cost in the worst case
is charged before: the evaluation then runs in a thread, or does not begin what it has no time for.
"""

from __future__ import annotations

import re
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
# Estimated nanoseconds: for a match and each of its groups, for visiting a state of the pattern at a byte of the text,
# and for compiling a pattern, which takes up to a second if it repeats large classes of characters.
_MATCH_NS = 10_000
_GROUP_NS = 1_500
_VISIT_NS = 15
_COMPILE_NS = 5_000
_COMPILE_LARGE_NS = 200_000_000
_LARGE = re.compile(r"\\[pP]|\{[0-9]{2}|\{[0-9]+,[0-9]{2}|\)\{|\(\?[a-zA-Z]*i")


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


_OPTIONS = _options()


class _Pattern:
    """A pattern, compiled on first use. `groups` and `size` are those of the machine."""

    __slots__ = ("groups", "machine", "size", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.machine: Any = None
        self.size = self.groups = 0

    def compile(self, run: Evaluation) -> None:
        large = _LARGE.search(self.source) is not None
        run.charge(_COMPILE_LARGE_NS if large else _COMPILE_NS * (4 + len(self.source)))
        machine = _compile(self.source)
        self.size, self.groups = machine.programsize, machine.groups
        self.machine = machine


def _compile(source: str) -> Any:
    try:
        return re2.compile(source, _OPTIONS)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ExpressionError(f"the pattern is not a regular expression: {text}") from None
    except UnicodeEncodeError:
        raise ExpressionError("the pattern holds half of a surrogate pair") from None


# The cache holds patterns that are not compiled yet, so that only the evaluation that compiles one is charged for it.
_pattern = lru_cache(maxsize=PATTERN_CACHE_SIZE)(_Pattern)


def compiled(source: str, run: Evaluation) -> _Pattern:
    """Return a compiled pattern."""
    if len(source) > MAX_PATTERN_CHARS:
        raise BudgetError(f"the pattern is too long (limit: {MAX_PATTERN_CHARS} characters)")
    pattern = _pattern(source)
    if pattern.machine is None:
        pattern.compile(run)
    return pattern


def _match_cost(pattern: _Pattern, text: str, start: int = 0) -> int:
    # In the worst case RE2 visits every state of the pattern for every byte.
    chars = len(text) - start
    size = chars if text.isascii() else 3 * chars
    return _MATCH_NS + _GROUP_NS * pattern.groups + _VISIT_NS * pattern.size * size


def _account(pattern: _Pattern, text: str, run: Evaluation) -> None:
    run.spend(_MATCH_STEPS + (pattern.size * (len(text) + 1024) >> 14))
    run.charge(_match_cost(pattern, text))


def search(text: str, source: str, run: Evaluation) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    pattern = compiled(source, run)
    _account(pattern, text, run)
    try:
        return pattern.machine.search(text) is not None
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None


def find_all(text: str, source: str, run: Evaluation) -> list[Any]:
    """Return every match: its text, its only group, or the list of its groups."""
    pattern = compiled(source, run)
    _account(pattern, text, run)
    found: list[Any] = []
    try:
        for match in pattern.machine.finditer(text):
            run.spend(_MATCH_STEPS >> 2)
            groups = match.groups() if pattern.groups else ()
            for each in groups or (match.group(),):
                run.build(len(each or ""))
            found.append(run.new_list(list(groups)) if len(groups) > 1 else (groups or (match.group(),))[0])
            # The search for the next match may read all of the remaining text.
            run.charge(_match_cost(pattern, text, match.end()))
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None
    return run.new_list(found)
