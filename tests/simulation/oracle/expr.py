"""Expression trees that render to the source of the language and evaluate to a value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

EXPRESSION_ERROR = "EXPRESSION_ERROR"


class _Sentinel:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


MISSING: Any = _Sentinel("MISSING")
ANY: Any = _Sentinel("ANY")
"""An unspecified value; it matches everything, also a missing value."""


class ExpressionError(Exception):
    """An expression without a value; its node fails."""


class Env(Protocol):
    """Resolves the names in an expression."""

    def lookup(self, name: str) -> Any: ...


class Expr:
    """Base of all expressions: `source` is the bare expression, `to_text` its form in a parameter."""

    __slots__ = ()

    def source(self) -> str:
        raise NotImplementedError

    def to_text(self) -> Any:
        return "{{ " + self.source() + " }}"

    def peek(self, env: Env) -> Any:
        """The value, or MISSING if a reference does not resolve."""
        return self.evaluate(env)

    def evaluate(self, env: Env) -> Any:
        raise NotImplementedError

    def children(self) -> tuple[Expr, ...]:
        return ()

    def walk(self) -> Iterator[Expr]:
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Lit(Expr):
    """A JSON literal."""

    value: Any

    def source(self) -> str:
        return json.dumps(self.value)

    def to_text(self) -> Any:
        return self.value

    def evaluate(self, env: Env) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Ref(Expr):
    """`$name` with a path of keys and indices."""

    name: str
    path: tuple[str | int, ...] = ()

    def source(self) -> str:
        steps = [f".{p}" if isinstance(p, str) else f"[{p}]" for p in self.path]
        return "$" + self.name + "".join(steps)

    def to_text(self) -> Any:
        return self.source()

    def peek(self, env: Env) -> Any:
        value = env.lookup(self.name)
        for step in self.path:
            value = _step(value, step)
        return value

    def evaluate(self, env: Env) -> Any:
        value = self.peek(env)
        if value is MISSING:
            raise ExpressionError(self.source())
        return value


def _step(value: Any, step: str | int) -> Any:
    if value is ANY:
        return ANY
    if isinstance(step, str):
        return value.get(step, MISSING) if isinstance(value, dict) else MISSING
    if isinstance(value, list) and -len(value) <= step < len(value):
        return value[step]
    return MISSING


@dataclass(frozen=True, slots=True)
class Coalesce(Expr):
    """`a ?? b`: the first that is neither missing nor null, else the last."""

    parts: tuple[Expr, ...]

    def source(self) -> str:
        return " ?? ".join(_parenthesized(part) for part in self.parts)

    def evaluate(self, env: Env) -> Any:
        for part in self.parts[:-1]:
            value = part.peek(env)
            if value is not MISSING and value is not None:
                return value
        return self.parts[-1].evaluate(env)

    def children(self) -> tuple[Expr, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Exists(Expr):
    """`exists(ref)`."""

    ref: Ref

    def source(self) -> str:
        return f"exists({self.ref.source()})"

    def evaluate(self, env: Env) -> Any:
        return self.ref.peek(env) is not MISSING

    def children(self) -> tuple[Expr, ...]:
        return (self.ref,)


@dataclass(frozen=True, slots=True)
class Infix(Expr):
    """A binary operator."""

    left: Expr
    op: str
    right: Expr

    def source(self) -> str:
        return f"{_parenthesized(self.left)} {self.op} {_parenthesized(self.right)}"

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Arith(Infix):
    """Arithmetic over numbers."""

    def evaluate(self, env: Env) -> Any:
        a, b = self.left.evaluate(env), self.right.evaluate(env)
        if not (_is_number(a) and _is_number(b)):
            raise ExpressionError(self.source())
        match self.op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "%" if b != 0:
                return a % b
        raise ExpressionError(self.source())


@dataclass(frozen=True, slots=True)
class Compare(Infix):
    """A comparison; only numbers or only strings can be ordered."""

    def evaluate(self, env: Env) -> Any:
        return compare(self.left.evaluate(env), self.op, self.right.evaluate(env))


@dataclass(frozen=True, slots=True)
class Logic(Expr):
    """`and` / `or`, which return an operand."""

    op: str
    parts: tuple[Expr, ...]

    def source(self) -> str:
        return f" {self.op} ".join(_parenthesized(part) for part in self.parts)

    def evaluate(self, env: Env) -> Any:
        value = None
        for part in self.parts:
            value = part.evaluate(env)
            if bool(value) == (self.op == "or"):
                return value
        return value

    def children(self) -> tuple[Expr, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Text(Expr):
    """Interpolated text: strings are literal, expressions stand in `{{ }}`."""

    parts: tuple[str | Expr, ...]

    def source(self) -> str:
        raise TypeError("interpolated text is a parameter, not an expression")

    def to_text(self) -> Any:
        return "".join(p if isinstance(p, str) else "{{ " + p.source() + " }}" for p in self.parts)

    def evaluate(self, env: Env) -> Any:
        values = [part if isinstance(part, str) else part.evaluate(env) for part in self.parts]
        return ANY if any(map(_contains_any, values)) else "".join(map(_render, values))

    def children(self) -> tuple[Expr, ...]:
        return tuple(part for part in self.parts if isinstance(part, Expr))


def ref(name: str, *path: str | int, default: Any = MISSING) -> Expr:
    """`$name.path`, with `?? default` if one is given."""
    bare = Ref(name, path)
    return bare if default is MISSING else Coalesce((bare, Lit(default)))


def compare(a: Any, op: str, b: Any) -> bool:
    """JSON comparison with the operators of rules and expressions."""
    if op == "==":
        return json_equal(a, b)
    if op == "!=":
        return not json_equal(a, b)
    if op == "contains":
        return any(json_equal(each, b) for each in a) if isinstance(a, list) else b in a
    if not ((_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str))):
        raise ExpressionError(f"{op} of mixed types")
    above, descendants = bool(a > b), bool(a < b)
    return {">": above, "<": descendants, ">=": not descendants, "<=": not above}[op]


def json_equal(a: Any, b: Any) -> bool:
    """JSON equality: booleans are not numbers, integers equal floats."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(json_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(json_equal(v, b[k]) for k, v in a.items())
    return bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains_any(value: Any) -> bool:
    """Whether a value contains ANY, so that its text is unspecified."""
    if isinstance(value, list | dict):
        return any(map(_contains_any, value.values() if isinstance(value, dict) else value))
    return value is ANY


def _render(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parenthesized(expr: Expr) -> str:
    return expr.source() if isinstance(expr, Lit | Ref | Exists) else f"({expr.source()})"
