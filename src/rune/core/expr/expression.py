"""An expression, compiled once and evaluated any number of times."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from rune.core.expr.budget import MAX_NESTING, MAX_SOURCE_BYTES, Run
from rune.core.expr.compiler import Compiler, check_size
from rune.core.expr.errors import ExpressionError, ExpressionSyntaxError
from rune.core.expr.lexer import Lexed, lex
from rune.core.expr.names import Names, Reference
from rune.core.expr.paths import Code
from rune.core.expr.scan import expression_end


class Expression:
    """A compiled expression. `pure` is false where it asks for the time or for a new identifier."""

    __slots__ = ("_accounted", "_code", "_salt", "_slots", "pure", "references", "source")

    def __init__(self, source: str, code: Code, compiler: Compiler, salt: str) -> None:
        self.source = source
        self.references: tuple[Reference, ...] = tuple(compiler.references)
        self.pure = compiler.pure
        self._code = code
        self._accounted = compiler.accounted
        self._slots = compiler.slots
        self._salt = salt

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """The value in a scope, whose keys are roots such as `$fetch`, and `@now` and `@seed`."""
        try:
            if not self._accounted:
                return self._code(scope, None)
            run = Run(scope, self._slots, self._salt)
            return run.settle(self._code(scope, run))
        except ArithmeticError:
            raise ExpressionError("a number is out of range") from None
        except UnicodeEncodeError:
            raise ExpressionError("a text holds half of a surrogate pair") from None
        except RecursionError:
            raise ExpressionError(f"a value is nested too deeply (limit: about {MAX_NESTING * 4})") from None


def compile_expression(source: str, names: Names) -> Expression:
    """Compile an expression. One that is written inside `{{ }}` is the same without them."""
    start, end = len(source) - len(source.lstrip()), len(source.rstrip())
    if source.startswith("{{", start) and expression_end(source, start + 2) == end - 2:
        # Blanked out instead of cut off, so that offsets stay true.
        source = " " * (start + 2) + source[start + 2 : end - 2]
    return compile_source(source, names)


def compile_source(source: str, names: Names, salt: str = "") -> Expression:
    """Compile exactly this text. The salt keeps the identifiers of two expressions apart."""
    if not source.strip():
        raise ExpressionSyntaxError("the expression is empty", 0)
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ExpressionSyntaxError(f"the expression is too long (limit: {MAX_SOURCE_BYTES:,} bytes)", 0)
    lexed = lex(source, names)
    tree = _parse(source, lexed)
    check_size(tree)
    compiler = Compiler(lexed, names)
    return Expression(source, compiler.compile(tree), compiler, salt)


def _parse(source: str, lexed: Lexed) -> ast.expr:
    try:
        return ast.parse(lexed.code, mode="eval").body
    except SyntaxError as error:
        offset = lexed.offset(max(0, (error.offset or 1) - 1))
    except (RecursionError, MemoryError):
        problem = f"the expression is nested too deeply (limit: {MAX_NESTING})"
        raise ExpressionSyntaxError(problem, 0) from None
    if offset >= len(source.rstrip()):
        raise ExpressionSyntaxError("the expression ends too early", len(source.rstrip()))
    near = source[offset : offset + 20].strip()
    raise ExpressionSyntaxError(f"the expression cannot be read near {near}", offset)
