"""Expressions of the workflow language, built with Python's operators.

An expression is text that the engine evaluates later. It therefore has no truth value, no length and no elements while
the workflow is built; using it so raises TypeError with the spelling that works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)

# How tightly an expression binds, from loosest to tightest.
CHOICE, OR, AND, NOT, COMPARISON, COALESCE, SUM, PRODUCT, SIGN, POWER, PRIMARY = range(11)


class Expr:
    """An expression. `.name`, `["a key"]` and `[0]` read from its value."""

    __slots__ = ("_level", "_source")
    __hash__ = None  # type: ignore[assignment]  # `==` makes an expression, so no expression can be a key

    def __init__(self, source: str, level: int = PRIMARY) -> None:
        self._source = source
        self._level = level

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(
                f"write [{name!r}] for a key that begins with an underscore" if name.strip("_") else name
            )
        return self._read(f".{name}")

    def __getitem__(self, key: str | int) -> Expr:
        if isinstance(key, str) and _MEMBER.match(key) and not key.startswith("__"):
            return self._read(f".{key}")
        kind: Any = type(key)
        if kind not in (str, int):
            hint = '; an expression has no slices: write expr("$node.list[1:3]")' if kind is slice else ""
            raise TypeError(f"a key is text or a whole number, not {kind.__name__}{hint}")
        return self._read(f"[{json.dumps(key, ensure_ascii=False)}]")

    def _read(self, suffix: str) -> Expr:
        return Expr(wrapped(self, PRIMARY) + suffix)

    def __call__(self, *arguments: Any) -> NoReturn:
        name = self._source.rpartition(".")[2]
        raise TypeError(f"`{self._source}` is a value, not a function; functions are in `fn`: fn.{name}(x)")

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"a format such as `:{spec}` cannot be applied when the workflow is built; use fn.round or fn.str"
            )
        return f"{{{{ {self._source} }}}}"

    def __str__(self) -> str:
        return self.__format__("")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._source}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"`{self._source}` has no truth value while the workflow is built. For `a and b`, `a or b`, `not a` write "
            "`a & b`, `a | b`, `~a` with each side in parentheses; for `x if c else y` write fn.choose(c, x, y); to "
            "branch, use conditional() or switch()"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"`{self._source}` has no elements while the workflow is built. To run nodes per element use split(); for "
            'a list of values write expr("[each.name for each in $node.list]")'
        )

    def __len__(self) -> NoReturn:
        raise TypeError(f"`{self._source}` has no length while the workflow is built; write fn.len(x)")

    def __contains__(self, item: Any) -> NoReturn:
        raise TypeError("`in` cannot make an expression; write fn.contains(list, x)")

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "==", other, COMPARISON)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "!=", other, COMPARISON)

    def __lt__(self, other: Any) -> Expr:
        return _binary(self, "<", other, COMPARISON)

    def __le__(self, other: Any) -> Expr:
        return _binary(self, "<=", other, COMPARISON)

    def __gt__(self, other: Any) -> Expr:
        return _binary(self, ">", other, COMPARISON)

    def __ge__(self, other: Any) -> Expr:
        return _binary(self, ">=", other, COMPARISON)

    def __and__(self, other: Any) -> Expr:
        return _binary(self, "and", other, AND)

    def __rand__(self, other: Any) -> Expr:
        return _binary(other, "and", self, AND)

    def __or__(self, other: Any) -> Expr:
        if isinstance(other, Function):
            return other(self)
        return _binary(self, "or", other, OR)

    def __ror__(self, other: Any) -> Expr:
        return _binary(other, "or", self, OR)

    def __invert__(self) -> Expr:
        return Expr(f"not {wrapped(self, NOT)}", NOT)

    def __add__(self, other: Any) -> Expr:
        return _binary(self, "+", other, SUM)

    def __radd__(self, other: Any) -> Expr:
        return _binary(other, "+", self, SUM)

    def __sub__(self, other: Any) -> Expr:
        return _binary(self, "-", other, SUM)

    def __rsub__(self, other: Any) -> Expr:
        return _binary(other, "-", self, SUM)

    def __mul__(self, other: Any) -> Expr:
        return _binary(self, "*", other, PRODUCT)

    def __rmul__(self, other: Any) -> Expr:
        return _binary(other, "*", self, PRODUCT)

    def __truediv__(self, other: Any) -> Expr:
        return _binary(self, "/", other, PRODUCT)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary(other, "/", self, PRODUCT)

    def __floordiv__(self, other: Any) -> Expr:
        return _binary(self, "//", other, PRODUCT)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _binary(other, "//", self, PRODUCT)

    def __mod__(self, other: Any) -> Expr:
        return _binary(self, "%", other, PRODUCT)

    def __rmod__(self, other: Any) -> Expr:
        return _binary(other, "%", self, PRODUCT)

    def __pow__(self, other: Any) -> Expr:
        return Expr(f"{wrapped(self, PRIMARY)} ** {wrapped(other, PRIMARY)}", POWER)

    def __rpow__(self, other: Any) -> Expr:
        return Expr(f"{wrapped(other, PRIMARY)} ** {wrapped(self, PRIMARY)}", POWER)

    def __neg__(self) -> Expr:
        return Expr(f"-{wrapped(self, PRIMARY)}", SIGN)


T_co = TypeVar("T_co", covariant=True)


class Ref(Expr, Generic[T_co]):
    """A reference such as `$quote.body.price`. Alone in a parameter it keeps the type of its value.

    `Ref[int]` is a reference to a number, as far as the output of a node is described: `quote.out.status`.
    """

    __slots__ = ()

    def __init__(self, source: str) -> None:
        super().__init__(source)

    def _read(self, suffix: str) -> Ref[Any]:
        return Ref(self._source + suffix)

    def __getattr__(self, name: str) -> Ref[Any]:
        return super().__getattr__(name)  # type: ignore[return-value]

    def __getitem__(self, key: str | int) -> Ref[Any]:
        return super().__getitem__(key)  # type: ignore[return-value]


class RawText(Expr):
    """The text of a parameter exactly as the document holds it."""

    __slots__ = ()

    def _read(self, suffix: str) -> NoReturn:
        raise TypeError("template() is the whole text of a parameter; use expr() to build on an expression")

    def __format__(self, spec: str) -> str:
        return self._source


class Function:
    """A function of the language: `fn.upper(x)`, or `x | fn.upper`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Expr:
        return Expr(f"{self.name}({', '.join(literal(each) for each in arguments)})")

    def __repr__(self) -> str:
        return f"<function {self.name} of the workflow language>"


def expr(source: str) -> Expr:
    """Return an expression from its text: `expr("$a.total ?? 0")`."""
    return Expr(source.strip(), CHOICE)


def template(text: str) -> Expr:
    """Return the text of a parameter exactly as it stands in the document: `template("{{ $a }} of {{ $b }}")`."""
    return RawText(text)


def literal(value: Any) -> str:
    """Return the text of a value inside an expression."""
    return wrapped(value, CHOICE)


def wrapped(value: Any, level: int) -> str:
    """Return the text of an operand, in parentheses if it binds less tightly than `level`."""
    if isinstance(value, RawText):
        raise TypeError("template() cannot be part of an expression; use expr()")
    if isinstance(value, Expr):
        return value._source if value._level >= level else f"({value._source})"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{literal(str(key))}: {literal(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(each) for each in value)}]"
    if value is None or isinstance(value, str | bool | int | float):
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return f"({text})" if text.startswith("-") and level > SUM else text
    raise TypeError(f"a value of type {type(value).__name__} cannot be part of an expression")


def _binary(left: Any, operator: str, right: Any, level: int) -> Expr:
    # Comparisons are chained in the language, so neither operand may be one without parentheses.
    first = wrapped(left, level + 1 if level == COMPARISON else level)
    return Expr(f"{first} {operator} {wrapped(right, level + 1)}", level)


def plain(value: Any, *, expression: bool = False) -> Any:
    """Return a parameter as plain data: a reference alone as `$ref`, an expression in braces, or bare where the whole
    parameter is one expression."""
    if isinstance(value, RawText):
        return value._source
    if isinstance(value, Expr):
        bare = expression or isinstance(value, Ref)
        return value._source if bare else f"{value}"
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Function):
        raise TypeError(f"fn.{value.name} is a function; call it: fn.{value.name}(x)")
    output = getattr(value, "out", None)
    if isinstance(output, Expr):
        raise TypeError(f"a parameter is JSON or an expression, not a node; its output is `{value.id}.out`")
    raise TypeError(f"a parameter is JSON or an expression, not {type(value).__name__}")
