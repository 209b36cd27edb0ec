"""Expressions: compiled once and evaluated any number of times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rune.core.expr.budget import (
    MAX_NESTING,
    MAX_SOURCE_BYTES,
    Evaluation,
    ExpressionError,
    ExpressionSyntaxError,
)
from rune.core.expr.compiler import Compiler, parse
from rune.core.expr.lexer import expression_end, lex
from rune.core.expr.names import ROOTS, Names, Reference
from rune.core.expr.operators import Code, fetch

# A single reference, the most common expression, skips the lexer and the compiler. `$node` and names with two leading
# underscores do not, as they need name resolution or an error.
_PLAIN = re.compile(
    r"[ \t\r\n]*+\$(?!node\b)([A-Za-z0-9_-]++)((?:\.(?!__)[A-Za-z_][A-Za-z0-9_]*+){0,16})[ \t\r\n]*+"
)

Resolver = Callable[[Mapping[str, Any]], Any]


class Expression:
    """A compiled expression. `pure` is false if it uses the current time or a new identifier."""

    __slots__ = ("_accounted", "_code", "_salt", "_slots", "pure", "references", "source")

    def __init__(self, source: str, code: Code, references: tuple[Reference, ...]) -> None:
        self.source = source
        self.references = references
        self.pure = True
        self._code = code
        self._accounted = False
        self._slots = 0
        self._salt = ""

    @classmethod
    def of(cls, source: str, code: Code, compiler: Compiler, salt: str) -> Expression:
        """Return the expression that a compiler has compiled."""
        made = cls(source, code, tuple(compiler.references))
        made.pure = compiler.pure
        made._accounted = compiler.accounted
        made._slots = compiler.slots
        made._salt = salt
        return made

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the value in a scope, whose keys are roots such as `$fetch`, and `@now` and `@seed`."""
        try:
            if not self._accounted:
                return self._code(scope, None)
            run = Evaluation(scope, self._slots, self._salt)
            return run.settle(self._code(scope, run))
        except ArithmeticError:
            raise ExpressionError("a number is out of range") from None
        except UnicodeEncodeError:
            raise ExpressionError("a text holds half of a surrogate pair") from None
        except RecursionError:
            raise ExpressionError(f"a value is nested too deeply (limit: about {MAX_NESTING * 4})") from None


def compile_expression(source: str, names: Names, base: str = "") -> Expression:
    """Compile an expression, with or without `{{ }}` around it.

    `base`, such as the name of a parameter, makes its generated identifiers differ from those of other expressions.
    """
    start, end = len(source) - len(source.lstrip()), len(source.rstrip())
    if source.startswith("{{", start) and expression_end(source, start + 2) == end - 2:
        # Replaced by spaces instead of removed, so that offsets stay correct.
        source = " " * (start + 2) + source[start + 2 : end - 2]
    return compile_source(source, names, base)


def compile_source(source: str, names: Names, salt: str = "") -> Expression:
    """Compile exactly this text. The salt makes the generated identifiers of two expressions differ."""
    if not source.strip():
        raise ExpressionSyntaxError("the expression is empty", 0)
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ExpressionSyntaxError(f"the expression is too long (limit: {MAX_SOURCE_BYTES:,} bytes)", 0)
    plain = _PLAIN.fullmatch(source)
    if plain is not None:
        word = plain[1]
        root = ROOTS.get(word) or ("$" + word if word in names.nodes else None)
        if root is not None:
            path = tuple(plain[2].split(".")[1:])
            reference = Reference(root, path, False, plain.start(1) - 1)
            return Expression(source, fetch(root, path), (reference,))
    lexed = lex(source, names)
    compiler = Compiler(lexed, names)
    return Expression.of(source, compiler.compile(parse(source, lexed)), compiler, salt)
