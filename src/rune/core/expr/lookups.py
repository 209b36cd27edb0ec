"""Compiled look-ups: the hot path of every expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rune.core.expr.budget import ExpressionError, MissingError
from rune.core.expr.operators import MISSING
from rune.core.expr.values import describe, kind_name, listed, look_up

# What every piece of an expression compiles to: the scope and the evaluation go in, a value comes out.
# Straight-line code is run without an evaluation.
Code = Callable[[Mapping[str, Any], Any], Any]
Path = tuple[str | int, ...]


class LookUp(Protocol):
    """The code of a look-up below a root. It never needs an evaluation."""

    def __call__(self, scope: Mapping[str, Any], run: Any = None, /) -> Any: ...


def absent(scope: Mapping[str, Any], root: str) -> MissingError:
    """The error for a root that is not there."""
    there = sorted(key for key in scope if key.startswith("$"))
    return MissingError(f"{root} is missing; there is: {listed(there)}")


def walk(value: Any, path: Path, place: str) -> Any:
    """Follow a path; the place is only put into words when something is missing."""
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


def _aliased(value: Any, path: Path) -> Path:
    """`fetch.output.x` means `fetch.x` where the output has no key `output`."""
    has_key = type(value) is dict and "output" in value
    return path if has_key or path[:1] != ("output",) else path[1:]


def fetch(root: str, path: Path, *, bare: bool = False) -> LookUp:
    """The value at a constant path below a root of the scope."""
    if not path:
        return _fetch_root(root)
    if bare and path[0] == "output":
        return _fetch_aliased(root, path)

    def code(scope: Mapping[str, Any], run: Any = None, /) -> Any:
        try:
            found = value = scope[root]
        except KeyError:
            raise absent(scope, root) from None
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
            raise absent(scope, root) from None

    return code


def _fetch_aliased(root: str, path: Path) -> LookUp:
    fetch_root = _fetch_root(root)

    def code(scope: Mapping[str, Any], run: Any = None, /) -> Any:
        value = fetch_root(scope)
        return walk(value, _aliased(value, path), root)

    return code


def peek(code: Code) -> Code:
    """The same, but a missing value is `MISSING` instead of an error."""

    def forgiving(scope: Mapping[str, Any], run: Any) -> Any:
        try:
            return code(scope, run)
        except MissingError:
            return MISSING

    return forgiving


def glance(code: Code, root: str, path: Path) -> Code:
    """What `peek` makes of a `fetch`, without the price of an error where a value is often missing."""
    forgiving = peek(code)

    def quick(scope: Mapping[str, Any], run: Any) -> Any:
        try:
            value = scope[root]
        except (KeyError, MissingError):
            return MISSING
        for key in path:
            if type(value) is not dict:
                return forgiving(scope, run)
            if key not in value:
                return MISSING
            value = value[key]
        return value

    return quick


def follow(base: Code, path: Path, place: str) -> Code:
    """The value at a constant path below any other value."""

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        return walk(base(scope, run), path, place)

    return code


def index(base: Code, key: Code, place: str) -> Code:
    """The value at a key that is only known when it runs."""

    def code(scope: Mapping[str, Any], run: Any) -> Any:
        return look_up(base(scope, run), key(scope, run), place)

    return code


def cut(base: Code, bounds: tuple[Code, Code, Code]) -> Code:
    """A slice of a list or of text."""
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
        taken = value[slice(*parts)]
        if type(taken) is list:
            return run.new_list(taken)
        run.build(len(taken))
        return taken

    return code
