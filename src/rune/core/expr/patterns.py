"""Regular expressions on RE2: the one place that compiles patterns. Its time is linear in the text for every pattern.

RE2 holds the interpreter while it compiles, which takes time in proportion to the program and, for counted repetitions
of what is optional, to its square: 140 s for a pattern of 990 characters. So the size of the program is estimated from
the text of the pattern, and a pattern that would become too large is refused before it is compiled. The largest one
that is allowed takes about 40 ms. A match releases the interpreter but cannot be stopped: its cost in the worst case is
charged before.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from rune.core.expr.budget import (
    MAX_PATTERN_CHARS,
    MAX_PATTERN_REPEATS,
    MAX_PATTERN_SIZE,
    PATTERN_CACHE_SIZE,
    PATTERN_MEMORY_BYTES,
    BudgetError,
    Evaluation,
    ExpressionError,
    Meter,
)

# The cost of a match in steps.
_MATCH_STEPS = 8
# Estimated nanoseconds: for a match and each of its groups, for visiting a state of the pattern at a byte of the text,
# and for compiling a pattern, each of its instructions and each pair of its repetitions.
_MATCH_NS = 10_000
_GROUP_NS = 1_500
_VISIT_NS = 15
_COMPILE_NS = 50_000
_INSTRUCTION_NS = 700
_REPEAT_NS = 4
# Instructions, rounded up: of a Unicode class such as `\pL`, of one that is written in brackets, of a letter in both
# cases, of a group, and of what is outside of ASCII in UTF-8.
_UNICODE_CLASS = 1_200
_CLASS = 30
_FOLDED = 4
_GROUP = 4
_WIDE = 4

_PART = re.compile(
    r"""
    (?P<literal>\\Q(?:(?!\\E).)*(?:\\E)?)
    | (?P<unicode>\\[pP](?:\{[^}]*\}|.)?)
    | (?P<escape>\\(?:x\{[^}]*\}|x..|[0-7]{1,3}|.)?)
    | (?P<class>\[\^?\]?(?:\\Q(?:(?!\\E).)*(?:\\E)?|\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]?)
    | (?P<flags>\(\?[A-Za-z-]*\))
    | (?P<open>\((?:\?(?:P?<[^>]*>|[A-Za-z-]*:))?)
    | (?P<close>\))
    | \{(?P<low>[0-9]{1,9})(?:(?P<range>,)(?P<high>[0-9]{0,9}))?\}
    | (?P<simple>[*+?|])
    | (?P<any>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_FOLDS = re.compile(r"\(\?[A-Za-z]*i")
_UNICODE = re.compile(r"\\[pP]")


class _Weight:
    """What a part of a pattern becomes when its repetitions are written out: instructions, and copies."""

    __slots__ = ("repeats", "size")

    def __init__(self, size: int = 0, repeats: int = 0) -> None:
        self.size = size
        self.repeats = repeats

    def add(self, other: _Weight) -> None:
        self.size += other.size
        self.repeats += other.repeats

    def times(self, count: int) -> _Weight:
        # A copy of what is optional has an instruction more.
        return _Weight((self.size + 1) * count, count + self.repeats * count)


def weigh(source: str) -> tuple[int, int]:
    """Return the estimated instructions of a pattern, and the copies that its repetitions make of their parts."""
    folds = _FOLDS.search(source) is not None
    around: list[_Weight] = []
    whole, last = _Weight(), _Weight()
    for part in _PART.finditer(source):
        kind, text = part.lastgroup, part[0]
        if kind in ("low", "range", "high"):
            last = last.times(max(int(part["low"]), int(part["high"] or 0), 1))
        elif kind in ("simple", "flags"):
            last.size += 1
        else:
            whole.add(last)
            last = _Weight()
            if kind == "open":
                around.append(whole)
                whole = _Weight(_GROUP)
            elif kind == "close":
                last = whole
                whole = around.pop() if around else _Weight()
            else:
                last.size = _size(str(kind), text, folds=folds)
    whole.add(last)
    for each in around:
        whole.add(each)
    return whole.size, whole.repeats


def _size(kind: str, text: str, *, folds: bool) -> int:
    if kind == "unicode":
        return _UNICODE_CLASS
    if kind == "escape":
        return _CLASS if text[1:2].isalpha() else _WIDE
    size = len(text) if text.isascii() else _WIDE * len(text)
    if folds:
        size *= _FOLDED
    if kind == "class":
        return _CLASS + size + _UNICODE_CLASS * len(_UNICODE.findall(text))
    return _CLASS if text == "." else size


@cache
def _machines() -> tuple[Any, Any]:
    """Return the module of RE2 and the options of all patterns."""
    import re2  # noqa: PLC0415 - most workflows hold no pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return re2, options


class Pattern:
    """A pattern, compiled on first use. `groups` and `size` are those of the machine."""

    __slots__ = ("groups", "machine", "size", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.machine: Any = None
        self.size = self.groups = 0

    def compile(self, meter: Meter) -> None:
        """Compile the pattern. Raise BudgetError if it is too large, ExpressionError if it is not a pattern."""
        instructions, repeats = weigh(self.source)
        if repeats > MAX_PATTERN_REPEATS:
            raise BudgetError(
                f"the pattern repeats its parts {repeats:,} times in all (limit: {MAX_PATTERN_REPEATS:,} times)"
            )
        if instructions > MAX_PATTERN_SIZE:
            raise BudgetError(
                f"the pattern becomes too large: about {instructions:,} instructions (limit: {MAX_PATTERN_SIZE:,})"
            )
        meter.charge(_COMPILE_NS + instructions * _INSTRUCTION_NS + repeats * repeats * _REPEAT_NS)
        machine = _compile(self.source)
        self.size, self.groups = machine.programsize, machine.groups
        self.machine = machine

    def match_cost(self, text: str, start: int = 0) -> int:
        """Return the estimated nanoseconds of a match in the worst case: RE2 visits every state for every byte."""
        chars = len(text) - start
        size = chars if text.isascii() else 3 * chars
        return _MATCH_NS + _GROUP_NS * self.groups + _VISIT_NS * self.size * size


def _compile(source: str) -> Any:
    re2, options = _machines()
    try:
        return re2.compile(source, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ExpressionError(f"the pattern is not a regular expression: {text}") from None
    except UnicodeEncodeError:
        raise ExpressionError("the pattern holds half of a surrogate pair") from None


# The cache holds patterns that are not compiled yet, so that only the evaluation that compiles one is charged for it.
_pattern = lru_cache(maxsize=PATTERN_CACHE_SIZE)(Pattern)


def compiled(source: str, meter: Meter) -> Pattern:
    """Return a compiled pattern. The work is charged to the meter."""
    if len(source) > MAX_PATTERN_CHARS:
        raise BudgetError(f"the pattern is too long (limit: {MAX_PATTERN_CHARS} characters)")
    pattern = _pattern(source)
    if pattern.machine is None:
        pattern.compile(meter)
    return pattern


def found_in(text: str, source: str, meter: Meter) -> bool:
    """Return whether the pattern matches anywhere in the text. The work is charged to the meter."""
    pattern = compiled(source, meter)
    meter.charge(pattern.match_cost(text))
    try:
        return pattern.machine.search(text) is not None
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None


def _account(pattern: Pattern, text: str, run: Evaluation) -> None:
    run.spend(_MATCH_STEPS + (pattern.size * (len(text) + 1024) >> 14))


def search(text: str, source: str, run: Evaluation) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    _account(compiled(source, run.meter), text, run)
    return found_in(text, source, run.meter)


def find_all(text: str, source: str, run: Evaluation) -> list[Any]:
    """Return every match: its text, its only group, or the list of its groups."""
    pattern = compiled(source, run.meter)
    _account(pattern, text, run)
    run.charge(pattern.match_cost(text))
    found: list[Any] = []
    try:
        for match in pattern.machine.finditer(text):
            run.spend(_MATCH_STEPS >> 2)
            groups = match.groups() if pattern.groups else ()
            for each in groups or (match.group(),):
                run.build(len(each or ""))
            found.append(run.new_list(list(groups)) if len(groups) > 1 else (groups or (match.group(),))[0])
            # The search for the next match may read all of the remaining text.
            run.charge(pattern.match_cost(text, match.end()))
    except UnicodeEncodeError:
        raise ExpressionError("the text holds half of a surrogate pair") from None
    return run.new_list(found)
