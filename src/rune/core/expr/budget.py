"""What can go wrong with an expression: at compile time, and while it runs.

The limits of one expression, and the account an evaluation keeps against them.

Straight-line code needs no account: its length is bounded by MAX_NODES. Loops, calls and
whatever builds a value do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rune.errors import RuneError


class ExpressionError(RuneError):
    """An expression could not be evaluated. `path` says where in a template it stands."""

    code = "EXPRESSION_ERROR"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def within(self, path: str) -> ExpressionError:
        """The same error, told from the template that holds the expression."""
        return type(self)(f"{path}: {self.message}", path=path) if path else self


class MissingError(ExpressionError):
    """Something looked up is not there. This alone is what `??` and `exists()` forgive."""


class BudgetError(ExpressionError):
    """The evaluation passed one of the limits in `budget`."""


class ExpressionSyntaxError(RuneError):
    """An expression was refused before anything ran. `offset` points into its source."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, problem: str, offset: int, hint: str = "", *, path: str = "") -> None:
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{problem} at character {offset + 1}{advice}")
        self.problem = problem
        self.offset = offset
        self.hint = hint
        self.path = path

    def moved(self, base: int, path: str = "") -> ExpressionSyntaxError:
        """The same error, told from the text that holds the expression at `base`."""
        return ExpressionSyntaxError(self.problem, self.offset + base, self.hint, path=path)


class ExpressionSyntaxErrors(RuneError):
    """Every syntax error found in one template."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, errors: list[ExpressionSyntaxError]) -> None:
        super().__init__("; ".join(f"{e.path}: {e.message}" if e.path else e.message for e in errors))
        self.errors = errors


MAX_SOURCE_BYTES = 8 * 1024
MAX_NODES = 500
MAX_TOKENS = 4 * MAX_NODES
MAX_NESTING = 50
MAX_STEPS = 100_000
STEPS_PER_ELEMENT = 50
# Elements beyond these grant no further steps, so that even a long list has an end to its cost.
MAX_GRANTED_ELEMENTS = 1_000_000
MAX_BUILT_BYTES = 1024 * 1024
MAX_INT_BITS = 4096
MAX_INT = (1 << MAX_INT_BITS) - 1
MAX_INT_DIGITS = 1233
MAX_JSON_DEPTH = 100
MAX_PATTERN_CHARS = 1000
PATTERN_MEMORY_BYTES = 4 * 1024 * 1024
PATTERN_CACHE_SIZE = 256
SHAPE_CACHE_SIZE = 256
MAX_SHAPE_CHARS = 200

# What one place in a list or object counts for; text counts its characters.
SLOT_BYTES = 4
_LARGE_INT = 1 << 63

Built = TypeVar("Built", list[Any], dict[str, Any])


class Evaluation:
    """One evaluation: its loop variables, its scope and what it may still spend.

    Steps are granted per element only to the outermost loop; an inner loop spends them. So the cost
    grows with the data, not with its square.
    """

    __slots__ = ("_grants", "_made", "_steps", "counter", "depth", "left", "salt", "scope", "slots")

    def __init__(self, scope: Mapping[str, Any], slots: int = 0, salt: str = "") -> None:
        self.scope = scope
        self.slots: list[Any] = [None] * slots
        self.salt = salt
        self.counter = 0
        self.depth = 0
        self._steps = MAX_STEPS
        self._grants = MAX_GRANTED_ELEMENTS
        self.left = MAX_BUILT_BYTES
        # Containers built here, by identity, with whether something built holds them already.
        self._made: dict[int, tuple[Any, bool]] = {}

    def spend(self, steps: int) -> None:
        """Account for work done."""
        self._steps -= steps
        if self._steps < 0:
            raise BudgetError(
                f"the expression takes too many steps (limit: {MAX_STEPS:,} steps"
                f" and {STEPS_PER_ELEMENT} per element)"
            )

    def iterate(self, count: int) -> None:
        """Account for a walk over `count` elements."""
        if not self.depth:
            granted = min(count, self._grants)
            self._grants -= granted
            self._steps += granted * STEPS_PER_ELEMENT
        self.spend(count)

    def scan(self, size: int) -> None:
        """Account for reading `size` characters of text without building any."""
        self.spend(1 + (size >> 10))

    def build(self, size: int) -> None:
        """Account for `size` bytes of new value, before they are made where that is possible."""
        self.left -= size
        if self.left < 0:
            raise BudgetError(f"the expression builds too large a value (limit: {MAX_BUILT_BYTES:,} bytes)")

    def include(self, value: Any) -> None:
        """Account for `value` becoming part of a list or object.

        A container built here is free once. A second place for it counts in full, or a few nested
        loops could share their way to a value of astronomic size.
        """
        self.build(SLOT_BYTES)
        kind = type(value)
        if kind is list or kind is dict:
            made = self._made.get(id(value))
            if made is not None:
                if made[1]:
                    self.weigh(value)
                self._made[id(value)] = (value, True)
        elif kind is int and not -_LARGE_INT < value < _LARGE_INT:
            self.build(value.bit_length() >> 3)

    def weigh(self, value: Any) -> None:
        """Account for the whole of `value`, as if it were built anew. Stops where the budget ends."""
        kind = type(value)
        if kind is str:
            self.build(len(value))
        elif kind is list:
            self.build(SLOT_BYTES * len(value))
            for each in value:
                self.weigh(each)
        elif kind is dict:
            for key, each in value.items():
                self.build(SLOT_BYTES + len(key))
                self.weigh(each)

    def new_list(self, items: list[Any]) -> list[Any]:
        """A list made by this evaluation."""
        for each in items:
            self.include(each)
        return self.own(items)

    def new_object(self, entries: dict[str, Any]) -> dict[str, Any]:
        """An object made by this evaluation."""
        for key, each in entries.items():
            self.build(len(key))
            self.include(each)
        return self.own(entries)

    def own(self, value: Built) -> Built:
        """Remember a container whose elements are accounted for."""
        self._made[id(value)] = (value, False)
        return value

    def settle(self, result: Any) -> Any:
        """Account for data that stands in the result more than once, and hand the result over.

        References are free while the expression works with them, and once in its result. Repeating
        a large one would multiply it when the result is written.
        """
        if self._made and id(result) in self._made:
            seen: set[int] = set()
            waiting = [result]
            while waiting:
                value = waiting.pop()
                for each in value if type(value) is list else value.values():
                    if type(each) not in (str, list, dict):
                        continue
                    if id(each) in self._made:
                        waiting.append(each)
                    elif id(each) in seen:
                        self.weigh(each)
                    else:
                        seen.add(id(each))
        return result
