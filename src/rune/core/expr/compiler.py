"""Compile an expression to closures, over an allow-list of the node kinds of Python's syntax tree.

Python parses the placeholder form that the lexer produces, never the source itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rune.core.expr import closures, operators
from rune.core.expr.budget import (
    MAX_NESTING,
    MAX_NODES,
    MAX_SHAPE_CHARS,
    SHAPE_CACHE_SIZE,
    ExpressionSyntaxError,
)
from rune.core.expr.functions import FUNCTIONS, Function
from rune.core.expr.lexer import Lexed, Token
from rune.core.expr.names import Names, Reference, known_references, unknown
from rune.core.expr.operators import Code, Path, fetch, follow, index, peek, peek_fetch, take_slice
from rune.core.expr.values import describe, is_number, json_equal


def parse(source: str, lexed: Lexed) -> ast.expr:
    """Return the syntax tree of an expression. Trees are cached and must not be modified."""
    try:
        tree = (_parse_cached if len(lexed.code) <= MAX_SHAPE_CHARS else _parse_code)(lexed.code)
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


def _parse_code(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


# Placeholder forms contain no names or literals of the source, so that many expressions share one.
_parse_cached = lru_cache(maxsize=SHAPE_CACHE_SIZE)(_parse_code)


def _check_size(tree: ast.expr, lexed: Lexed) -> None:
    """Reject too many syntax nodes. There are at most as many as pieces, so short expressions are not counted."""
    if len(lexed.pieces) > MAX_NODES and size(tree) > MAX_NODES:
        raise ExpressionSyntaxError(f"the expression is too long (limit: {MAX_NODES} syntax nodes)", 0)


def size(*nodes: ast.AST) -> int:
    """Return the number of expression nodes in these trees."""
    return sum(isinstance(each, ast.expr) for node in nodes for each in ast.walk(node))


def is_marked(node: ast.expr, mark: str) -> bool:
    """Return whether a tree is a call that the lexer wrote as `T(…)` or `P(…)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == mark


_ARITHMETIC: dict[type[ast.operator], operators.Operation] = {
    ast.Add: operators.add,
    ast.Sub: operators.subtract,
    ast.Mult: operators.multiply,
    ast.Div: operators.divide,
    ast.FloorDiv: operators.floor_divide,
    ast.Mod: operators.modulo,
    ast.Pow: operators.power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: json_equal,
    ast.NotEq: operators.not_equal,
    ast.Lt: operators.less,
    ast.LtE: operators.at_most,
    ast.Gt: operators.greater,
    ast.GtE: operators.at_least,
    ast.In: operators.within,
    ast.NotIn: operators.not_within,
    ast.Is: operators.contains,
    ast.IsNot: operators.lacks,
}
_REFUSED = {
    ast.Set: ("a set is not a JSON value", "a list is written [a, b]"),
    ast.SetComp: ("a set is not a JSON value", "a list is written [x for x in list]"),
    ast.Tuple: ("a comma is only allowed between elements", "a list is written [a, b]"),
    ast.Starred: ("* does not unpack here", "lists are joined with +"),
}
WRITTEN_AS = {
    "all": "false not in [x > 0 for x in list]",
    "any": "true in [x > 0 for x in list]",
    "concat": "a + b",
    "count": "len(list)",
    "filter": "[x for x in list if x > 0]",
    "length": "len(list)",
    "map": "[x * 2 for x in list]",
    "size": "len(list)",
    "slice": "list[0:2]",
    "substring": "text[0:2]",
}
"""What to write in place of functions of other languages."""
_TOO_DEEP = f"the expression is nested too deeply (limit: {MAX_NESTING})"
_NONE = closures.constant(None)
_LINKS = (ast.Attribute, ast.Subscript)


class Compiler:
    """Compiles one expression and collects its references."""

    def __init__(self, lexed: Lexed, names: Names) -> None:
        self.references: list[Reference] = []
        self.pure = True
        self.accounted = False
        self.slots = 0
        self._lexed = lexed
        self._names = names
        self._variables: dict[str, int] = {}
        self._optional_depth = 0
        self._nesting = 0
        self._fetched: tuple[Code, str, Path] | None = None

    def compile(self, node: ast.expr) -> Code:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(_TOO_DEEP, node)
        handler = _HANDLERS.get(type(node))
        if handler is None:
            problem, hint = _REFUSED.get(type(node), ("this is not part of the language", ""))
            raise self._error(problem, node, hint)
        code = handler(self, node)
        self._nesting -= 1
        return code

    def _error(self, problem: str, node: ast.expr | ast.keyword, hint: str = "") -> ExpressionSyntaxError:
        return ExpressionSyntaxError(problem, self._offset(node), hint)

    def _offset(self, node: ast.expr | ast.keyword) -> int:
        return self._lexed.offset(node.col_offset)

    def _compile_optional(self, node: ast.expr) -> Code:
        """Compile an operand that may be missing."""
        self._optional_depth += 1
        code = self._peek(self.compile(node))
        self._optional_depth -= 1
        return code

    def _peek(self, code: Code) -> Code:
        fetched = self._fetched
        return peek_fetch(*fetched) if fetched is not None and fetched[0] is code else peek(code)

    def _constant(self, node: ast.expr | None) -> tuple[Any] | None:
        """Return the value of a literal in a tuple, or None."""
        if isinstance(node, ast.Name):
            token = self._lexed.token(node.id)
            return (token.value,) if token.kind == "literal" else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._constant(node.operand)
            return (-inner[0],) if inner and is_number(inner[0]) else None
        return None

    def _chain(self, node: ast.expr) -> Code:
        """Compile a name and the lookups that follow it."""
        if isinstance(node, ast.Name):
            return self._base(node, ())[0]
        links: list[ast.Attribute | ast.Subscript] = []
        base = node
        while isinstance(base, _LINKS):
            links.append(base)
            base = base.value
        links.reverse()
        keys = [self._key(link) for link in links]
        known = keys.index(None) if None in keys else len(keys)
        path = tuple([key[0] for key in keys[:known] if key])
        code, place = self._base(base, path)
        rest = links[known:]
        if not rest:
            return code
        for passed in path:
            place = describe(place, passed)
        if len(rest) > MAX_NESTING:
            raise self._error(_TOO_DEEP, node)
        for link in rest:
            code = self._link(code, link, place)
            place = "the value"
        return code

    def _key(self, link: ast.Attribute | ast.Subscript) -> tuple[str | int] | None:
        """Return the constant key of a lookup in a tuple, or None."""
        if isinstance(link, ast.Attribute):
            token = self._lexed.token(link.attr)
            if token.kind != "word":
                raise ExpressionSyntaxError(
                    "a name is missing after the dot", token.offset, "write [0] for an index"
                )
            return (token.value,)
        constant = self._constant(link.slice)
        return constant if constant and type(constant[0]) in (str, int) else None

    def _base(self, node: ast.expr, path: tuple[str | int, ...]) -> tuple[Code, str]:
        """Compile the beginning of a chain with its constant path; return it with its name in messages."""
        if isinstance(node, ast.Name):
            token = self._lexed.token(node.id)
            if token.kind == "literal":
                return self._compile_path(closures.constant(token.value), path, "the value")
            if token.kind == "word" and token.value in self._variables:
                return self._compile_path(closures.variable(self._variables[token.value]), path, token.value)
            root, bare = self._root(token)
            self.references.append(Reference(root, path, self._optional_depth > 0, token.offset))
            code = fetch(root, path, bare=bare)
            if not bare or path[:1] != ("output",):
                self._fetched = (code, root, path)
            return code, root
        return self._compile_path(self.compile(node), path, "the value")

    def _compile_path(self, code: Code, path: tuple[str | int, ...], place: str) -> tuple[Code, str]:
        return (follow(code, path, place) if path else code), place

    def _root(self, token: Token) -> tuple[str, bool]:
        """Return the root that a name denotes, and whether it was written without `$`."""
        if token.kind != "word":
            return token.value, token.kind == "bare"
        if token.value in self._names.nodes:
            return "$" + token.value, True
        if token.value in FUNCTIONS:
            raise ExpressionSyntaxError(
                f"{token.value} is a function", token.offset, f"write {FUNCTIONS[token.value].signature}"
            )
        known = {*self._variables, *self._names.nodes, *known_references(self._names)}
        raise unknown(token.value, token.offset, known)

    def _link(self, code: Code, link: ast.Attribute | ast.Subscript, place: str) -> Code:
        key = self._key(link)
        if key is not None:
            return follow(code, key, place)
        assert isinstance(link, ast.Subscript)
        if isinstance(link.slice, ast.Slice):
            self.accounted = True
            parts = (link.slice.lower, link.slice.upper, link.slice.step)
            bounds = [self.compile(each) if each else _NONE for each in parts]
            return take_slice(code, (bounds[0], bounds[1], bounds[2]))
        return index(code, self.compile(link.slice), place)

    def _binary(self, node: ast.BinOp) -> Code:
        if isinstance(node.op, ast.BitOr):
            return self._coalesce(node)
        self.accounted = True
        rest: list[tuple[operators.Operation, Code]] = []
        left: ast.expr = node
        row: list[ast.BinOp] = []
        while isinstance(left, ast.BinOp) and not isinstance(left.op, ast.BitOr):
            row.append(left)
            left = left.left
        first = self.compile(left)
        constant = self._constant(node.right)
        if constant is not None and len(row) == 1:
            return closures.arithmetic_with(first, _ARITHMETIC[type(node.op)], constant[0])
        for each in reversed(row):
            rest.append((_ARITHMETIC[type(each.op)], self.compile(each.right)))
        return closures.arithmetic(first, rest)

    def _coalesce(self, node: ast.BinOp) -> Code:
        row: list[ast.expr] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.BitOr):
            row.append(left.right)
            left = left.left
        optional = [self._compile_optional(each) for each in (left, *reversed(row[1:]))]
        return closures.coalesce(optional, self.compile(row[0]))

    def _unary(self, node: ast.UnaryOp) -> Code:
        constant = self._constant(node)
        if constant is not None:
            return closures.constant(constant[0])
        operand = self.compile(node.operand)
        if isinstance(node.op, ast.Not):
            return closures.negation(operand)
        return closures.unary(
            operators.negate if isinstance(node.op, ast.USub) else operators.affirm, operand
        )

    def _logic(self, node: ast.BoolOp) -> Code:
        operands = [self.compile(each) for each in node.values]
        return closures.both(operands) if isinstance(node.op, ast.And) else closures.either(operands)

    def _compare(self, node: ast.Compare) -> Code:
        left = self.compile(node.left)
        if len(node.ops) == 1:
            constant = self._constant(node.comparators[0])
            if constant is not None and isinstance(node.ops[0], ast.Eq):
                return closures.equality(left, constant[0])
        pairs = list(zip(node.ops, node.comparators, strict=True))
        short = all(self._is_short(op, each) for op, each in pairs)
        rest = [(_COMPARISONS[type(op)], self._right_operand(op, each)) for op, each in pairs]
        if len(rest) == 1:
            return (closures.comparison if short else closures.long_comparison)(left, *rest[0])
        self.accounted = self.accounted or not short
        return closures.comparisons(left, rest)

    def _is_short(self, op: ast.cmpop, node: ast.expr) -> bool:
        """Return whether the right side bounds the cost of a comparison: it is a literal, and is not searched for."""
        if isinstance(op, ast.Is | ast.IsNot):
            return False
        if isinstance(op, ast.In | ast.NotIn) and not isinstance(node, ast.List):
            return False
        return all(self._constant(each) for each in (node.elts if isinstance(node, ast.List) else [node]))

    def _right_operand(self, op: ast.cmpop, node: ast.expr) -> Code:
        """Compile the right side of a comparison. A list of literals after `in` is built only once."""
        if isinstance(op, ast.In | ast.NotIn) and isinstance(node, ast.List):
            literals = [self._constant(each) for each in node.elts]
            if None not in literals:
                return closures.constant([each[0] for each in literals if each])
        return self.compile(node)

    def _choice(self, node: ast.IfExp) -> Code:
        """Compile `a if c else b` and `c ? a : b`, which the lexer writes as `c if T(a) else b`."""
        if is_marked(node.test, "T"):
            (chosen,) = self._one_argument(node.test)
            return closures.choice(self.compile(node.body), self.compile(chosen), self.compile(node.orelse))
        return closures.choice(self.compile(node.test), self.compile(node.body), self.compile(node.orelse))

    def _one_argument(self, node: Any) -> list[ast.expr]:
        arguments: list[ast.expr] = node.args
        if len(arguments) != 1:
            raise self._error("exactly one value is required between ? and :", node)
        return arguments

    def _list(self, node: ast.List) -> Code:
        self.accounted = True
        return closures.new_list([self.compile(each) for each in node.elts])

    def _object(self, node: ast.Dict) -> Code:
        self.accounted = True
        entries = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise self._error("** does not unpack here", value, "objects are joined with merge(a, b)")
            entries.append((self.compile(key), self.compile(value)))
        return closures.new_object(entries)

    def _list_loop(self, node: ast.ListComp | ast.GeneratorExp) -> Code:
        outer = dict(self._variables)
        loops = self._loops(node.generators, size(node.elt))
        element = self.compile(node.elt)
        self._variables = outer
        return closures.list_loop(loops, element)

    def _object_loop(self, node: ast.DictComp) -> Code:
        outer = dict(self._variables)
        loops = self._loops(node.generators, size(node.key, node.value))
        key, element = self.compile(node.key), self.compile(node.value)
        self._variables = outer
        return closures.object_loop(loops, key, element)

    def _loops(self, generators: list[ast.comprehension], body_cost: int) -> list[closures.Loop]:
        self.accounted = True
        loops = []
        for each in generators:
            source = self.compile(each.iter)
            unpacks = isinstance(each.target, ast.Tuple)
            targets = each.target.elts if isinstance(each.target, ast.Tuple) else [each.target]
            slots = tuple([self._bind(target) for target in targets])
            conditions = [self.compile(condition) for condition in each.ifs]
            cost = size(*each.ifs) + (body_cost if each is generators[-1] else 1)
            loops.append(closures.Loop(slots, unpacks, source, conditions, cost))
        return loops

    def _bind(self, target: ast.expr) -> int:
        token = self._lexed.token(target.id) if isinstance(target, ast.Name) else None
        if token is None or token.kind != "word":
            raise self._error("a loop variable is a plain name", target)
        self._variables[token.value] = self.slots
        self.slots += 1
        return self.slots - 1

    def _call(self, node: ast.Call) -> Code:
        self.accounted = True
        if is_marked(node, "P"):
            return self._pipe(node)
        function = self._function(node.func)
        if function.name in ("exists", "default"):
            self._check_arguments(function, node, 0)
            return self._compile_lenient(function, self._compile_optional(node.args[0]), node.args[1:])
        return self._compile_call(function, node, [])

    def _function(self, node: ast.expr) -> Function:
        token = self._lexed.token(node.id) if isinstance(node, ast.Name) else None
        if token is None or token.kind != "word":
            raise self._error("only functions can be called", node, "values have no methods: write upper(x)")
        if token.value not in FUNCTIONS:
            error = unknown(token.value, token.offset, FUNCTIONS, "the functions in docs/expressions.md")
            hint = f"write {WRITTEN_AS[token.value]}" if token.value in WRITTEN_AS else error.hint
            raise ExpressionSyntaxError(f"unknown function {token.value[:80]}", token.offset, hint)
        function = FUNCTIONS[token.value]
        self.pure = self.pure and function.pure
        return function

    def _check_arguments(self, function: Function, node: ast.expr, piped: int) -> None:
        """Check the number of arguments, including the piped value."""
        given = piped + (len(node.args) if isinstance(node, ast.Call) else 0)
        if given < function.least or (function.most is not None and given > function.most):
            hint = f"write {function.signature}"
            raise self._error(f"{function.name}() does not take {given} arguments", node, hint)
        seen: set[str] = set()
        for keyword in node.keywords if isinstance(node, ast.Call) else []:
            name = self._keyword(keyword)
            if name in seen or function.keywords.get(name, -1) < given:
                raise self._error(f"{function.name}() takes no further argument called {name}", keyword)
            seen.add(name)

    def _keyword(self, keyword: ast.keyword) -> str:
        return str(self._lexed.token(keyword.arg).value) if keyword.arg else "**"

    def _compile_call(self, function: Function, node: ast.expr, first: list[Code]) -> Code:
        """Compile a call with the piped value in front of its arguments."""
        self._check_arguments(function, node, len(first))
        if not isinstance(node, ast.Call):
            return closures.call(function.call, first, {})
        named = {self._keyword(each): self.compile(each.value) for each in node.keywords}
        operands = [*first, *(self.compile(each) for each in node.args)]
        return closures.call(function.call, operands, named)

    def _compile_lenient(self, function: Function, optional: Code, others: list[ast.expr]) -> Code:
        """Compile `exists` and `default`, the only functions that accept a missing value."""
        if function.name == "exists":
            return closures.existence(optional)
        return closures.coalesce([optional], self.compile(others[0]))

    def _pipe(self, node: ast.Call) -> Code:
        stages = [
            (each, self._function(each.func if isinstance(each, ast.Call) else each))
            for each in node.args[1:]
        ]
        if len(stages) > MAX_NESTING:
            raise self._error(_TOO_DEEP, node)
        # Every stage before an `exists` or `default` may be missing.
        optional_stages = sum(function.name in ("exists", "default") for _, function in stages)
        self._optional_depth += optional_stages
        code = self.compile(node.args[0])
        for stage, function in stages:
            if function.name in ("exists", "default"):
                self._optional_depth -= 1
                self._check_arguments(function, stage, 1)
                others = stage.args if isinstance(stage, ast.Call) else []
                code = self._compile_lenient(function, self._peek(code), others)
            else:
                code = self._compile_call(function, stage, [code])
        return code


_HANDLERS: dict[type[ast.expr], Callable[[Compiler, Any], Code]] = {
    ast.Name: Compiler._chain,
    ast.Attribute: Compiler._chain,
    ast.Subscript: Compiler._chain,
    ast.BinOp: Compiler._binary,
    ast.UnaryOp: Compiler._unary,
    ast.BoolOp: Compiler._logic,
    ast.Compare: Compiler._compare,
    ast.IfExp: Compiler._choice,
    ast.List: Compiler._list,
    ast.Dict: Compiler._object,
    ast.ListComp: Compiler._list_loop,
    ast.GeneratorExp: Compiler._list_loop,
    ast.DictComp: Compiler._object_loop,
    ast.Call: Compiler._call,
}
