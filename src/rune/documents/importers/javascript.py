"""Parse the subset of JavaScript that other tools use in expressions.

The subset has literals, paths, operators, ternaries, calls, template literals and arrow functions with one parameter.
The tree is translated by `translate`.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from rune.errors import RuneError

MAX_SOURCE_CHARS = 8_192
MAX_DEPTH = 40

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[\w$]*)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>=>|\?\?|\?\.(?!\d)|===|!==|==|!=|<=|>=|&&|\|\||\*\*|\.\.\.|[-+*/%<>!?:.,()\[\]{}])
    |(?P<tick>`)""",
    re.VERBOSE | re.DOTALL,
)
_WHOLE = re.compile(r"0[xX][0-9a-fA-F]+|0|[1-9][0-9]*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SHOWN_CHARS = 20
_MAX_WHOLE_CHARS = 400
MAX_SAFE = 2**53
MAX_STORED = 2**64 - 1
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)

# Binary operators by precedence, loosest first. Mixing ?? with && and || needs parentheses in JavaScript as well.
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"??"}),
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"==", "!=", "===", "!=="}),
    frozenset({"<", ">", "<=", ">="}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
_UNSUPPORTED_WORDS = frozenset(
    [
        "function",
        "class",
        "async",
        "await",
        "yield",
        "delete",
        "void",
        "in",
        "instanceof",
        "var",
        "let",
        "const",
        "return",
        "if",
        "for",
        "while",
        "do",
        "switch",
        "throw",
        "this",
    ]
)


class UntranslatableError(RuneError):
    """An expression is outside of the subset, or has no counterpart in Rune. The message is the reason."""

    code = "UNTRANSLATABLE"


class Step(msgspec.Struct, frozen=True):
    """One step of a path: `.name`, `[key]` or `(arguments)`."""

    kind: str  # "name", "key" or "call"
    name: str = ""
    key: Any = None
    arguments: tuple[Any, ...] = ()
    optional: bool = False


class Constant(msgspec.Struct, frozen=True):
    """A number, text, boolean, null or undefined."""

    value: Any
    undefined: bool = False


class Name(msgspec.Struct, frozen=True):
    """An identifier."""

    name: str


class Path(msgspec.Struct, frozen=True):
    """An expression followed by steps."""

    base: Any
    steps: tuple[Step, ...]


class Unary(msgspec.Struct, frozen=True):
    operator: str
    operand: Any


class Binary(msgspec.Struct, frozen=True):
    operator: str
    left: Any
    right: Any


class Choice(msgspec.Struct, frozen=True):
    """`condition ? yes : no`."""

    condition: Any
    yes: Any
    no: Any


class Array(msgspec.Struct, frozen=True):
    elements: tuple[Any, ...]


class Object(msgspec.Struct, frozen=True):
    """Key and value; an empty key is a spread."""

    members: tuple[tuple[str | None, Any], ...]


class TextTemplate(msgspec.Struct, frozen=True):
    """A template literal: texts and expressions."""

    parts: tuple[Any, ...]


class Arrow(msgspec.Struct, frozen=True):
    """An arrow function with one parameter."""

    parameter: str
    body: Any


class New(msgspec.Struct, frozen=True):
    """`new Name(arguments)`."""

    name: str
    arguments: tuple[Any, ...]


def parse(source: str) -> Any:
    """Parse one expression. Anything outside of the subset raises UntranslatableError."""
    if len(source) > MAX_SOURCE_CHARS:
        raise UntranslatableError(f"the expression is longer than {MAX_SOURCE_CHARS:,} characters")
    return _Parser(_tokens(source)).whole()


def _tokens(source: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise UntranslatableError(f"unexpected `{source[at : at + 10]}`")
        kind = match.lastgroup or ""
        if kind == "tick":
            parts, at = _template(source, at + 1)
            found.append(("template", parts))
            continue
        if kind == "mark" and match[0] == "/" and (not found or found[-1][1] in {"(", ",", "=", ":", "?"}):
            raise UntranslatableError("regular expression literals are not supported")
        if kind == "number":
            found.append((kind, number_in(match[0])))
        elif kind == "text":
            found.append((kind, _unescape(match[0][1:-1])))
        elif kind != "space":
            found.append((kind, match[0]))
        at = match.end()
    return [*found, ("end", "")]


def number_in(text: str) -> int | float:
    """Return the number that a literal stands for, as JavaScript reads it. A whole number of more digits than
    JavaScript keeps is refused: it is rounded there, which its author may not know."""
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    if not _NUMBER.fullmatch(text):
        raise UntranslatableError(f"the number `{shown}` is written in a way that is not supported")
    if _WHOLE.fullmatch(text):
        exact = int(text, 0) if len(text) <= _MAX_WHOLE_CHARS else MAX_STORED + 1
        if exact > MAX_STORED or int(float(exact)) != exact:
            raise UntranslatableError(
                f"the number `{shown}` has more digits than JavaScript keeps; write it as text"
            )
        return exact
    value = float(text)
    if math.isinf(value):
        raise UntranslatableError(f"the number `{shown}` is too large")
    return int(value) if value.is_integer() and value <= MAX_SAFE else value


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        what = match[1]
        if what[0] in "ux" and len(what) > 1:
            code = int(what[1:].strip("{}"), 16)
            if code > 0x10FFFF:
                raise UntranslatableError("a text holds an invalid character")
            return chr(code)
        return _ESCAPES.get(what, what)

    found = _ESCAPE.sub(one, text)
    try:
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UntranslatableError("a text holds half of a surrogate pair") from None


def _template(source: str, at: int) -> tuple[tuple[Any, ...], int]:
    """Read a template literal whose opening tick is before `at`; return its parts and its end."""
    parts: list[Any] = []
    plain: list[str] = []
    while at < len(source):
        if source[at] == "`":
            return (*parts, _unescape("".join(plain))), at + 1
        if source.startswith("${", at):
            end = _closing_brace(source, at + 2)
            parts += [_unescape("".join(plain)), parse(source[at + 2 : end])]
            plain = []
            at = end + 1
        else:
            size = 2 if source[at] == "\\" else 1
            plain.append(source[at : at + size])
            at += size
    raise UntranslatableError("a template literal is not closed")


def _closing_brace(source: str, at: int) -> int:
    depth = 0
    quote = ""
    while at < len(source):
        char = source[at]
        if quote:
            at += 1 if char == "\\" else 0
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    raise UntranslatableError("a template literal is not closed")


class _Parser:
    """A recursive-descent parser with a limit on its depth."""

    def __init__(self, tokens: list[tuple[str, Any]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Any:
        found = self._expression()
        if self._tokens[self._at][0] != "end":
            raise self._unexpected()
        return found

    def _unexpected(self) -> UntranslatableError:
        kind, value = self._tokens[self._at]
        return UntranslatableError(
            "the expression ends too early" if kind == "end" else f"unexpected `{value}`"
        )

    def _is(self, *marks: str) -> bool:
        kind, value = self._tokens[self._at]
        return kind == "mark" and value in marks

    def _take(self, mark: str) -> None:
        if not self._is(mark):
            raise self._unexpected()
        self._at += 1

    def _skip(self, mark: str) -> bool:
        if self._is(mark):
            self._at += 1
            return True
        return False

    def _expression(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
        try:
            return self._arrow() or self._choice()
        finally:
            self._depth -= 1

    def _arrow(self) -> Arrow | None:
        kinds = [kind for kind, _ in self._tokens[self._at : self._at + 4]]
        values = [value for _, value in self._tokens[self._at : self._at + 4]]
        if kinds[:1] == ["name"] and values[1:2] == ["=>"]:
            parameter, size = values[0], 2
        elif values[:1] == ["("] and kinds[1:2] == ["name"] and values[2:4] == [")", "=>"]:
            parameter, size = values[1], 4
        else:
            return None
        self._at += size
        if self._is("{"):
            raise UntranslatableError("functions with a body in braces are not supported")
        return Arrow(parameter, self._expression())

    def _choice(self) -> Any:
        condition = self._binary(0)
        if not self._skip("?"):
            return condition
        yes = self._expression()
        self._take(":")
        return Choice(condition, yes, self._expression())

    def _binary(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        chain = 0
        while self._tokens[self._at][0] == "mark" and self._tokens[self._at][1] in _LEVELS[level]:
            chain += 1
            if chain > 200:
                raise UntranslatableError("the expression has more than 200 operators in a row")
            operator = self._tokens[self._at][1]
            self._at += 1
            left = Binary(operator, left, self._binary(level + 1))
        kind, value = self._tokens[self._at]
        if kind == "name" and value in {"in", "instanceof"}:
            raise UntranslatableError(f"`{value}` is not supported")
        return left

    def _power(self) -> Any:
        base = self._unary()
        if self._skip("**"):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
            found = Binary("**", base, self._power())
            self._depth -= 1
            return found
        return base

    def _unary(self) -> Any:
        kind, value = self._tokens[self._at]
        if (kind == "mark" and value in {"!", "-", "+"}) or (kind == "name" and value == "typeof"):
            self._at += 1
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
            operand = self._unary()
            self._depth -= 1
            return Unary(value, operand)
        return self._path()

    def _path(self) -> Any:
        base = self._primary()
        steps: list[Step] = []
        while True:
            optional = self._skip("?.")
            if self._is("["):
                self._at += 1
                steps.append(Step("key", key=self._expression(), optional=optional))
                self._take("]")
            elif self._is("("):
                steps.append(Step("call", arguments=self._arguments(), optional=optional))
            elif optional or self._skip("."):
                kind, value = self._tokens[self._at]
                if kind != "name":
                    raise self._unexpected()
                self._at += 1
                steps.append(Step("name", name=value, optional=optional))
            else:
                break
            if len(steps) > 200:
                raise UntranslatableError("a path has more than 200 steps")
        if self._tokens[self._at][0] == "template":
            raise UntranslatableError("tagged template literals are not supported")
        return Path(base, tuple(steps)) if steps else base

    def _arguments(self) -> tuple[Any, ...]:
        return self._list("(", ")")

    def _list(self, opening: str, closing: str) -> tuple[Any, ...]:
        self._take(opening)
        found: list[Any] = []
        while not self._is(closing):
            if self._is("..."):
                raise UntranslatableError("spreading a list is not supported")
            found.append(self._expression())
            if not self._skip(","):
                break
        self._take(closing)
        return tuple(found)

    def _primary(self) -> Any:
        kind, value = self._tokens[self._at]
        if kind in {"number", "text"}:
            self._at += 1
            return Constant(value)
        if kind == "template":
            self._at += 1
            return TextTemplate(value)
        if kind == "name":
            return self._word(value)
        if self._skip("("):
            inner = self._expression()
            self._take(")")
            return inner
        if self._is("["):
            return Array(self._list("[", "]"))
        if self._is("{"):
            return self._object()
        raise self._unexpected()

    def _word(self, word: str) -> Any:
        if word in _UNSUPPORTED_WORDS:
            raise UntranslatableError(f"`{word}` is not supported")
        self._at += 1
        constants = {"true": True, "false": False, "null": None, "undefined": None}
        if word in constants:
            return Constant(constants[word], word == "undefined")
        if word == "new":
            kind, name = self._tokens[self._at]
            if kind != "name":
                raise self._unexpected()
            self._at += 1
            return New(name, self._arguments() if self._is("(") else ())
        return Name(word)

    def _object(self) -> Object:
        self._take("{")
        members: list[tuple[str | None, Any]] = []
        while not self._is("}"):
            if self._skip("..."):
                members.append((None, self._expression()))
            else:
                kind, value = self._tokens[self._at]
                if kind not in {"name", "text", "number"}:
                    raise UntranslatableError("computed keys are not supported")
                self._at += 1
                if self._skip(":"):
                    members.append((str(value), self._expression()))
                elif kind == "name":
                    members.append((value, Name(value)))
                else:
                    raise self._unexpected()
            if not self._skip(","):
                break
        self._take("}")
        return Object(tuple(members))
