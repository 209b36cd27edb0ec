"""The errors and limits of expressions, the budget of one evaluation and the meter of its work.

Straight-line code needs no budget, as MAX_NODES bounds its length. Loops, calls, comparisons of two values and
operations that build a value do.

Two kinds of accounting are separate. The limits on steps and built bytes are part of the language: exceeding one is an
error on every machine. The meter counts estimated CPU time, charged before the work is done; the caller of an
evaluation decides what happens when it is empty. See
docs/adr/0034-long-evaluations-move-to-a-thread-with-a-cpu-limit.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec

from rune.errors import RuneError

MAX_SOURCE_BYTES = 8 * 1024
MAX_NODES = 500
MAX_TOKENS = 4 * MAX_NODES
MAX_NESTING = 50
MAX_STEPS = 100_000
STEPS_PER_ELEMENT = 50
# Elements beyond this number grant no further steps, which bounds the cost of long lists.
MAX_GRANTED_ELEMENTS = 1_000_000
MAX_BUILT_BYTES = 1024 * 1024
MAX_INT_BITS = 4096
MAX_INT = (1 << MAX_INT_BITS) - 1
MAX_INT_DIGITS = 1233
MAX_JSON_DEPTH = 100
MAX_PATTERN_CHARS = 1000
# The copies that counted repetitions make of their parts, and the instructions of a pattern, both estimated.
MAX_PATTERN_REPEATS = 3_000
MAX_PATTERN_SIZE = 65_000
PATTERN_MEMORY_BYTES = 4 * 1024 * 1024
PATTERN_CACHE_SIZE = 256
SHAPE_CACHE_SIZE = 256
MAX_SHAPE_CHARS = 200

# The cost of one element of a list or object; text costs its length.
SLOT_BYTES = 4
_LARGE_INT = 1 << 63

METER = "@meter"
"""The key of a scope under which the meter of its evaluations is found, if there is one."""

# Estimated costs in nanoseconds, from measurements on a slow core and rounded up. An estimate that is too high moves
# work to a thread earlier than necessary; one that is too low blocks an event loop.
EVALUATION_NS = 1_000
STEP_NS = 150
ELEMENT_NS = 200
COMPARE_NS = 80
# A piece of work in C holds the interpreter until it ends, so that larger ones are cut into pieces of this size.
PIECE_NS = 20_000_000
BLOCK = 1024
# Texts up to this length are compared for the price of a step.
SHORT_TEXT = 1024
# Steps are taken from the budget in slices, so that the meter costs nothing per step.
_SLICE = 256
_UNLIMITED = 1 << 62

Element = TypeVar("Element")
Built = TypeVar("Built", list[Any], dict[str, Any])


class ExpressionError(RuneError):
    """An expression could not be evaluated. `path` is its place in a template."""

    code = "EXPRESSION_ERROR"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def within(self, path: str) -> ExpressionError:
        """Return the error with the path of its expression in a template."""
        return type(self)(f"{path}: {self.message}", path=path) if path else self


class MissingError(ExpressionError):
    """A value is missing. `??`, `default()` and `exists()` accept only this error."""


class BudgetError(ExpressionError):
    """The evaluation exceeded a limit of this module."""


class TimeBudgetError(BudgetError):
    """The evaluation needs more CPU time than it may use."""

    code = "BUDGET_EXCEEDED"


class ExpressionSyntaxError(RuneError):
    """An expression does not compile. `offset` is a position in its source."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, problem: str, offset: int, hint: str = "", *, path: str = "") -> None:
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{problem} at character {offset + 1}{advice}")
        self.problem = problem
        self.offset = offset
        self.hint = hint
        self.path = path

    def moved(self, base: int, path: str = "") -> ExpressionSyntaxError:
        """Return the error relative to a text that contains the expression at `base`."""
        return ExpressionSyntaxError(self.problem, self.offset + base, self.hint, path=path)


class ExpressionSyntaxErrors(RuneError):  # noqa: N818 - a list of errors
    """Every syntax error found in one template."""

    code = "EXPRESSION_SYNTAX"

    def __init__(self, errors: list[ExpressionSyntaxError]) -> None:
        super().__init__("; ".join(f"{e.path}: {e.message}" if e.path else e.message for e in errors))
        self.errors = errors


class Meter(msgspec.Struct, eq=False):
    """Counts the estimated nanoseconds of the evaluations that share it.

    When `left` is used up, `refill` is called with the cost of what comes next. It returns a new allowance or raises.
    """

    left: int
    _refill: Callable[[int], int]

    def charge(self, cost: int) -> None:
        """Account for work that is about to be done."""
        self.left -= cost
        if self.left < 0:
            self.left = self._refill(cost)


def _refill_all(cost: int) -> int:
    return _UNLIMITED


# Shared by all evaluations without a meter. That they count down together has no effect.
UNMETERED = Meter(_UNLIMITED, _refill_all)


def meter_of(scope: Mapping[str, Any]) -> Meter:
    """Return the meter of a scope; one that is never empty if it has none."""
    found: Meter = scope.get(METER, UNMETERED)
    return found


class Evaluation:
    """One evaluation: its scope, its loop variables, its remaining budget and its meter.

    Only the outermost loop is granted steps per element, and inner loops spend them, so that the cost grows linearly
    with the data.
    """

    __slots__ = (
        "_built",
        "_grantable",
        "_reserve",
        "_slice",
        "_steps",
        "counter",
        "depth",
        "left",
        "meter",
        "salt",
        "scope",
        "slots",
    )

    def __init__(self, scope: Mapping[str, Any], slots: int = 0, salt: str = "") -> None:
        self.scope = scope
        self.slots: list[Any] = [None] * slots
        self.salt = salt
        self.counter = 0
        self.depth = 0
        self.meter: Meter = scope.get(METER, UNMETERED)
        # The steps left are those of the current slice and those in the reserve.
        self._steps = self._slice = _SLICE
        self._reserve = MAX_STEPS - _SLICE
        self._grantable = MAX_GRANTED_ELEMENTS
        self.left = MAX_BUILT_BYTES
        # Containers built by this evaluation, by identity, and whether another one already includes them.
        self._built: dict[int, tuple[Any, bool]] = {}

    def charge(self, cost: int) -> None:
        """Account for the time of work that is about to be done, in nanoseconds."""
        self.meter.charge(cost)

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            self._take_slice()

    def _take_slice(self) -> None:
        used = self._slice - self._steps
        left = self._reserve + self._steps
        if left < 0:
            raise BudgetError(
                f"the expression takes too many steps (limit: {MAX_STEPS:,} steps"
                f" and {STEPS_PER_ELEMENT} per element)"
            )
        self._steps = self._slice = min(_SLICE, left)
        self._reserve = left - self._steps
        self.meter.charge(used * STEP_NS)

    def iterate(self, count: int) -> None:
        """Account for the steps of an iteration over `count` elements. Its time is charged while it runs."""
        if not self.depth:
            granted = min(count, self._grantable)
            self._grantable -= granted
            self._reserve += granted * STEPS_PER_ELEMENT
        if count <= self._reserve:
            self._reserve -= count
        else:
            self.spend(count)

    def over(self, elements: Iterable[Element], count: int, cost: int = ELEMENT_NS) -> Iterable[Element]:
        """Return the elements, charged block by block while they are taken. `count` is their number."""
        if count <= BLOCK:
            self.meter.charge(count * cost)
            return elements
        return self._blocks(iter(elements), cost)

    def _blocks(self, elements: Iterator[Element], cost: int) -> Iterator[Element]:
        while block := list(islice(elements, BLOCK)):
            self.meter.charge(len(block) * cost)
            yield from block

    def scan(self, size: int, cost: int = 5) -> None:
        """Account for reading `size` characters of text without building any."""
        self.spend(1 + (size >> 10))
        self.meter.charge(size * cost)

    def reserve(self, count: int) -> None:
        """Refuse a list or object with `count` elements that the budget has no room for, before it is built."""
        if count * SLOT_BYTES > self.left:
            raise self._too_large()

    def build(self, size: int) -> None:
        """Account for `size` bytes of a new value, if possible before it is built."""
        self.left -= size
        if self.left < 0:
            raise self._too_large()

    def _too_large(self) -> BudgetError:
        return BudgetError(f"the expression builds too large a value (limit: {MAX_BUILT_BYTES:,} bytes)")

    def include(self, value: Any) -> None:
        """Account for `value` becoming part of a list or object.

        The first inclusion of a container built here is free. Each further one costs its full size, as a few nested
        loops that share a container could otherwise build an exponentially large value.
        """
        self.build(SLOT_BYTES)
        kind = type(value)
        if kind is list or kind is dict:
            made = self._built.get(id(value))
            if made is not None:
                if made[1]:
                    self.weigh(value)
                self._built[id(value)] = (value, True)
        elif kind is int and not -_LARGE_INT < value < _LARGE_INT:
            self.build(value.bit_length() >> 3)

    def weigh(self, value: Any) -> None:
        """Account for the full size of `value`. Stops when the budget is exhausted."""
        kind = type(value)
        if kind is str:
            self.build(len(value))
        elif kind is list:
            self.build(SLOT_BYTES * len(value))
            for each in self.over(value, len(value)):
                self.weigh(each)
        elif kind is dict:
            self.reserve(len(value))
            for key, each in self.over(value.items(), len(value)):
                self.build(SLOT_BYTES + len(key))
                self.weigh(each)

    def new_list(self, items: list[Any]) -> list[Any]:
        """Account for the elements of a new list and return it."""
        self.reserve(len(items))
        for each in self.over(items, len(items)):
            self.include(each)
        return self.own(items)

    def new_object(self, entries: dict[str, Any]) -> dict[str, Any]:
        """Account for the entries of a new object and return it."""
        for key, each in self.over(entries.items(), len(entries)):
            self.build(len(key))
            self.include(each)
        return self.own(entries)

    def own(self, value: Built) -> Built:
        """Register a container whose elements are already accounted for."""
        self._built[id(value)] = (value, False)
        return value

    def settle(self, result: Any) -> Any:
        """Account for data that occurs more than once in the result, and return the result.

        References to input data are free, including the first occurrence in the result. Each further occurrence would
        multiply the data when the result is serialized.
        """
        meter = self.meter
        meter.left -= EVALUATION_NS + (self._slice - self._steps) * STEP_NS
        if meter.left < 0:
            meter.charge(0)
        if self._built and id(result) in self._built:
            seen: set[int] = set()
            waiting = [result]
            while waiting:
                value = waiting.pop()
                members = value if type(value) is list else value.values()
                for each in self.over(members, len(value)):
                    if type(each) not in (str, list, dict):
                        continue
                    if id(each) in self._built:
                        waiting.append(each)
                    elif id(each) in seen:
                        self.weigh(each)
                    else:
                        seen.add(id(each))
        return result
