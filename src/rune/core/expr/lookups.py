"""Compiled lookups, the hot path of every expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rune.core.expr.budget import ExpressionError, MissingError
from rune.core.expr.operators import MISSING
from rune.core.expr.values import describe, kind_name, listed, look_up

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
