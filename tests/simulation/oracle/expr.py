"""A tiny expression tree with two faces: the source text of the language, and its value."""

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
"""A value the documents leave open; it agrees with everything, also with nothing at all."""


class ExpressionError(Exception):
    """An expression that has no value: the node that asked for it fails."""


class Env(Protocol):
    """What an expression can see."""

    def look(self, name: str) -> Any: ...


class Expr:
    """Base of all expressions: `source` is the bare expression, `to_text` what stands in a parameter."""

    __slots__ = ()

    def source(self) -> str:
        raise NotImplementedError

    def to_text(self) -> Any:
        return "{{ " + self.source() + " }}"

    def peek(self, env: Env) -> Any:
        """The value, or MISSING where a reference leads nowhere."""
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
        value = env.look(self.name)
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
        return " ?? ".join(_wrapped(part) for part in self.parts)

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
    """Two sides and what stands between them."""

    left: Expr
    op: str
    right: Expr

    def source(self) -> str:
        return f"{_wrapped(self.left)} {self.op} {_wrapped(self.right)}"

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Arith(Infix):
    """`a + b` and its like, over numbers only."""

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
    """A comparison; ordering works within numbers and within text only."""

    def evaluate(self, env: Env) -> Any:
        return compare(self.left.evaluate(env), self.op, self.right.evaluate(env))


@dataclass(frozen=True, slots=True)
class Logic(Expr):
    """`and` / `or`, which give an operand."""

    op: str
    parts: tuple[Expr, ...]

    def source(self) -> str:
        return f" {self.op} ".join(_wrapped(part) for part in self.parts)

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
    """Text with `{{ }}` inside: strings stand for themselves, expressions are interpolated."""

    parts: tuple[str | Expr, ...]

    def source(self) -> str:
        raise TypeError("interpolated text is a parameter, not an expression")

    def to_text(self) -> Any:
        return "".join(p if isinstance(p, str) else "{{ " + p.source() + " }}" for p in self.parts)

    def evaluate(self, env: Env) -> Any:
        values = [part if isinstance(part, str) else part.evaluate(env) for part in self.parts]
        return ANY if any(map(_is_open, values)) else "".join(map(_spelled, values))

    def children(self) -> tuple[Expr, ...]:
        return tuple(part for part in self.parts if isinstance(part, Expr))


def ref(name: str, *path: str | int, default: Any = MISSING) -> Expr:
    """`$name.path`, with `?? default` where one is given."""
    bare = Ref(name, path)
    return bare if default is MISSING else Coalesce((bare, Lit(default)))


def compare(a: Any, op: str, b: Any) -> bool:
    """JSON comparison by the operators that rules and expressions share."""
    if op == "==":
        return same(a, b)
    if op == "!=":
        return not same(a, b)
    if op == "contains":
        return any(same(each, b) for each in a) if isinstance(a, list) else b in a
    if not ((_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str))):
        raise ExpressionError(f"{op} of mixed types")
    above, below = bool(a > b), bool(a < b)
    return {">": above, "<": below, ">=": not below, "<=": not above}[op]


def same(a: Any, b: Any) -> bool:
    """JSON equality: booleans are no numbers, integers and floats compare."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_open(value: Any) -> bool:
    """Whether some of it is left open, and with it how it is spelled."""
    if isinstance(value, list | dict):
        return any(map(_is_open, value.values() if isinstance(value, dict) else value))
    return value is ANY


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _wrapped(expr: Expr) -> str:
    return expr.source() if isinstance(expr, Lit | Ref | Exists) else f"({expr.source()})"
