"""The operators of expressions, the lookup of names, keys, indexes and slices, and the table of operators for rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rune.core.expr.budget import (
    MAX_INT,
    MAX_INT_BITS,
    SLOT_BYTES,
    BudgetError,
    Evaluation,
    ExpressionError,
    MissingError,
)
from rune.core.expr.patterns import search
from rune.core.expr.values import (
    charge_comparison,
    describe,
    is_number,
    json_equal,
    kind_name,
    listed,
    look_up,
)

Operation = Callable[[Any, Any, Evaluation], Any]
_WINDOW_CHARS = 1024 * 1024
# Per character. The search is linear in the text, with a factor that depends on how often its beginning is found.
_FIND_NS = 6


class Missing:
    """The type of `MISSING`, which marks an absent value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


def checked(value: Any) -> Any:
    """Return a number if it is finite and within the size limit."""
    if type(value) is int:
        if not -MAX_INT <= value <= MAX_INT:
            raise BudgetError(f"the number is too large (limit: {MAX_INT_BITS} bits)")
    elif not math.isfinite(value):
        raise ExpressionError("the result is not a finite number")
    return value


def _refuse(word: str, a: Any, b: Any) -> ExpressionError:
    return ExpressionError(f"cannot {word} {kind_name(a)} and {kind_name(b)}")


def add(a: Any, b: Any, run: Evaluation) -> Any:
    """Add numbers, or concatenate two texts or two lists."""
    if is_number(a) and is_number(b):
        return checked(a + b)
    kind = type(a)
    if kind is type(b):
        if kind is str:
            run.build(len(a) + len(b))
            return a + b
        if kind is list:
            run.reserve(len(a) + len(b))
            return run.new_list(a + b)
    raise _refuse("add", a, b)


def subtract(a: Any, b: Any, run: Evaluation) -> Any:
    if is_number(a) and is_number(b):
        return checked(a - b)
    raise _refuse("subtract", a, b)


def multiply(a: Any, b: Any, run: Evaluation) -> Any:
    """Multiply numbers, or repeat text or a list."""
    if is_number(a) and is_number(b):
        return checked(a * b)
    if type(a) is int:
        a, b = b, a
    if type(b) is int and (type(a) is str or type(a) is list):
        unit = 1 if type(a) is str else SLOT_BYTES
        # Accounted for before it is built: the result may not fit in memory.
        run.build(max(0, b) * len(a) * unit)
        repeated: Any = a * max(0, b)
        return run.new_list(repeated) if type(a) is list else repeated
    raise _refuse("multiply", a, b)


def divide(a: Any, b: Any, run: Evaluation) -> Any:
    _divisor(a, b)
    return checked(a / b)


def floor_divide(a: Any, b: Any, run: Evaluation) -> Any:
    _divisor(a, b)
    return checked(a // b)


def modulo(a: Any, b: Any, run: Evaluation) -> Any:
    _divisor(a, b)
    return checked(a % b)


def _divisor(a: Any, b: Any) -> None:
    if not (is_number(a) and is_number(b)):
        raise _refuse("divide", a, b)
    if b == 0:
        raise ExpressionError("division by zero")


def power(a: Any, b: Any, run: Evaluation) -> Any:
    if not (is_number(a) and is_number(b)):
        raise _refuse("raise", a, b)
    if a == 0 and b < 0:
        raise ExpressionError("division by zero")
    if type(a) is int and type(b) is int:
        # The minimum size is known in advance; computing the result could take very long.
        if b > 0 and (a.bit_length() - 1) * b > MAX_INT_BITS:
            raise BudgetError(f"the number is too large (limit: {MAX_INT_BITS} bits)")
    elif a < 0 and type(b) is float and not b.is_integer():
        raise ExpressionError("a negative number has no such power")
    return checked(a**b)


def negate(value: Any) -> Any:
    if is_number(value):
        return -value
    raise ExpressionError(f"cannot negate {kind_name(value)}")


def affirm(value: Any) -> Any:
    if is_number(value):
        return value
    raise ExpressionError(f"+ needs a number, not {kind_name(value)}")


def comparable(a: Any, b: Any) -> bool:
    """Return whether two values have an order: both are numbers, or both are text."""
    first, second = type(a), type(b)
    if first is str:
        return second is str
    return (first is int or first is float) and (second is int or second is float)


def less(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    if comparable(a, b):
        if run is not None and type(a) is str:
            charge_comparison(a, b, run)
        return bool(a < b)
    raise _refuse("compare the order of", a, b)


def at_most(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    if comparable(a, b):
        if run is not None and type(a) is str:
            charge_comparison(a, b, run)
        return bool(a <= b)
    raise _refuse("compare the order of", a, b)


def greater(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    return less(b, a, run)


def at_least(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    return at_most(b, a, run)


def not_equal(a: Any, b: Any, run: Evaluation | None = None) -> bool:
    return not json_equal(a, b, run)


def contains(holder: Any, wanted: Any, run: Evaluation | None = None) -> bool:
    """Return whether text contains text, a list an element, or an object a key."""
    kind = type(holder)
    if kind is list:
        elements = holder
        if run is not None:
            run.iterate(len(holder))
            elements = run.over(holder, len(holder))
        return any(json_equal(each, wanted, run) for each in elements)
    if type(wanted) is str and (kind is dict or kind is str):
        if run is not None and kind is str:
            run.spend(1 + (len(holder) >> 10))
            return _find(holder, wanted, run)
        return wanted in holder
    raise ExpressionError(f"cannot look for {kind_name(wanted)} in {kind_name(holder)}")


def _find(text: str, wanted: str, run: Evaluation) -> bool:
    """Return whether a text contains another, searched window by window."""
    window = max(_WINDOW_CHARS, len(wanted))
    for start in range(0, len(text), window):
        end = start + window + len(wanted) - 1
        run.charge((min(end, len(text)) - start) * _FIND_NS)
        if text.find(wanted, start, end) >= 0:
            return True
    return not wanted


def lacks(holder: Any, wanted: Any, run: Evaluation | None = None) -> bool:
    return not contains(holder, wanted, run)


def within(wanted: Any, holder: Any, run: Evaluation | None = None) -> bool:
    return contains(holder, wanted, run)


def not_within(wanted: Any, holder: Any, run: Evaluation | None = None) -> bool:
    return not contains(holder, wanted, run)


def _text_pair(name: str, a: Any, b: Any) -> None:
    if type(a) is not str or type(b) is not str:
        raise ExpressionError(f"{name} takes text and text, not {kind_name(a)} and {kind_name(b)}")


def starts_with(text: Any, prefix: Any, run: Evaluation | None = None) -> bool:
    _text_pair("starts_with", text, prefix)
    if run is not None:
        charge_comparison(text, prefix, run)
    return bool(text.startswith(prefix))


def ends_with(text: Any, suffix: Any, run: Evaluation | None = None) -> bool:
    _text_pair("ends_with", text, suffix)
    if run is not None:
        charge_comparison(text, suffix, run)
    return bool(text.endswith(suffix))


def matches(text: Any, pattern: Any, run: Evaluation | None = None) -> bool:
    _text_pair("matches", text, pattern)
    return search(text, pattern, run or Evaluation({}))


def present(value: Any, wanted: Any = None, run: Evaluation | None = None) -> bool:
    """Return whether the value is not `MISSING`; with `wanted` false, whether it is."""
    return (value is not MISSING) is (wanted is not False)


OPERATORS: Mapping[str, Callable[..., bool]] = {
    "==": json_equal,
    "!=": not_equal,
    ">": greater,
    ">=": at_least,
    "<": less,
    "<=": at_most,
    "contains": contains,
    "in": within,
    "starts_with": starts_with,
    "ends_with": ends_with,
    "matches": matches,
    "exists": present,
    "eq": json_equal,
    "neq": not_equal,
    "gt": greater,
    "gte": at_least,
    "lt": less,
    "lte": at_most,
}


# The closure that each part of an expression compiles to. It takes the scope and the evaluation, which is None for
# straight-line code.
Code = Callable[[Mapping[str, Any], Any], Any]
Path = tuple[str | int, ...]


class LookUp(Protocol):
    """The code of a lookup below a root. It never needs an evaluation."""

    def __call__(self, scope: Mapping[str, Any], run: Any = None, /) -> Any: ...


def missing_root(scope: Mapping[str, Any], root: str) -> MissingError:
    present = sorted(key for key in scope if key.startswith("$"))
    return MissingError(f"{root} is missing; available: {listed(present)}")


def walk(value: Any, path: Path, place: str) -> Any:
    """Follow a path. The place is formatted only if a value is missing."""
    for at, key in enumerate(path):
        kind = type(value)
        if (kind is dict and key in value) or (
            kind is list and type(key) is int and -len(value) <= key < len(value)
        ):
            value = value[key]
        else:
            for passed in path[:at]:
                place = describe(place, passed)
            value = look_up(value, key, place)
    return value


def _resolve_alias(value: Any, path: Path) -> Path:
    """Treat `fetch.output.x` as `fetch.x` if the output has no key `output`."""
    has_key = type(value) is dict and "output" in value
    return path if has_key or path[:1] != ("output",) else path[1:]


def fetch(root: str, path: Path, *, bare: bool = False) -> LookUp:
    """Return code for the value at a constant path below a root of the scope."""
    if not path:
        return _fetch_root(root)
    if bare and path[0] == "output":
        return _fetch_aliased(root, path)

    def code(scope: Mapping[str, Any], run: Any = None, /) -> Any:
        try:
            found = value = scope[root]
        except KeyError:
            raise missing_root(scope, root) from None
        for key in path:
            if type(value) is dict and key in value:
                value = value[key]
            else:
                return walk(found, path, root)
        return value

    return code


def _fetch_root(root: str) -> LookUp:
    def code(scope: Mapping[str, Any], run: Any = None, /) -> Any:
        try:
            return scope[root]
        except KeyError:
            raise missing_root(scope, root) from None

    return code


def _fetch_aliased(root: str, path: Path) -> LookUp:
    fetch_root = _fetch_root(root)

    def code(scope: Mapping[str, Any], run: Any = None, /) -> Any:
        value = fetch_root(scope)
        return walk(value, _resolve_alias(value, path), root)

    return code


def peek(code: Code) -> Code:
    """Return code that yields `MISSING` instead of raising MissingError."""

    def value_or_missing(scope: Mapping[str, Any], run: Any) -> Any:
        try:
            return code(scope, run)
        except MissingError:
            return MISSING

    return value_or_missing


def peek_fetch(code: Code, root: str, path: Path) -> Code:
    """Return what `peek` returns for a `fetch`, without the cost of an exception for a missing value."""
    slow = peek(code)

    def quick(scope: Mapping[str, Any], run: Any) -> Any:
        try:
            value = scope[root]
        except (KeyError, MissingError):
            return MISSING
        for key in path:
            if type(value) is not dict:
                return slow(scope, run)
            if key not in value:
                return MISSING
            value = value[key]
        return value

    return quick


def follow(base: Code, path: Path, place: str) -> Code:
    """Return code for the value at a constant path below any value."""

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        return walk(base(scope, run), path, place)

    return code


def index(base: Code, key: Code, place: str) -> Code:
    """Return code for the value at a computed key."""

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        return look_up(base(scope, run), key(scope, run), place)

    return code


def take_slice(base: Code, bounds: tuple[Code, Code, Code]) -> Code:
    """Return code for a slice of a list or of text."""
    first, last, step = bounds

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        value = base(scope, run)
        if type(value) is not list and type(value) is not str:
            raise ExpressionError(f"cannot take a slice of {kind_name(value)}")
        parts = (first(scope, run), last(scope, run), step(scope, run))
        for part in parts:
            if part is not None and type(part) is not int:
                raise ExpressionError(f"the bounds of a slice are whole numbers, not {kind_name(part)}")
        if parts[2] == 0:
            raise ExpressionError("the step of a slice cannot be 0")
        part = slice(*parts)
        count = len(range(*part.indices(len(value))))
        if type(value) is list:
            run.reserve(count)
            return run.new_list(value[part])
        run.build(count)
        return value[part]

    return code
