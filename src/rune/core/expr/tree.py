"""Python's syntax tree of the placeholder form of an expression."""

from __future__ import annotations

import ast
from functools import lru_cache

from rune.core.expr.budget import MAX_NESTING, MAX_NODES, MAX_SHAPE_CHARS, SHAPE_CACHE_SIZE
from rune.core.expr.errors import ExpressionSyntaxError
from rune.core.expr.lexer import Lexed


def parse(source: str, lexed: Lexed) -> ast.expr:
    """The tree of an expression, which many others may share: it is not to be changed."""
    try:
        tree = (_shape if len(lexed.code) <= MAX_SHAPE_CHARS else _parsed)(lexed.code)
    except SyntaxError as error:
        offset = lexed.offset(max(0, (error.offset or 1) - 1))
    except (RecursionError, MemoryError):
        problem = f"the expression is nested too deeply (limit: {MAX_NESTING})"
        raise ExpressionSyntaxError(problem, 0) from None
    else:
        _check_size(tree, lexed)
        return tree
    if offset >= len(source.rstrip()):
        raise ExpressionSyntaxError("the expression ends too early", len(source.rstrip()))
    near = source[offset : offset + 20].strip()
    raise ExpressionSyntaxError(f"the expression cannot be read near {near}", offset)


def _parsed(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


# A placeholder form holds nothing of the author's own, so a few shapes serve most expressions.
_shape = lru_cache(maxsize=SHAPE_CACHE_SIZE)(_parsed)


def _check_size(tree: ast.expr, lexed: Lexed) -> None:
    """Refuse too many syntax nodes. There are never more of them than pieces, which need no counting."""
    if len(lexed.pieces) > MAX_NODES and size(tree) > MAX_NODES:
        raise ExpressionSyntaxError(f"the expression is too long (limit: {MAX_NODES} syntax nodes)", 0)


def size(*nodes: ast.AST) -> int:
    """How many pieces of syntax that have a value there are in these trees."""
    return sum(isinstance(each, ast.expr) for node in nodes for each in ast.walk(node))


def is_marked(node: ast.expr, mark: str) -> bool:
    """Whether a tree is the call that the lexer wrote as `T(…)` or `P(…)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == mark
