"""Python code that declares a workflow and does nothing else: an allow list over the syntax tree.

`to_python` checks what it wrote with it, so that text of a document never becomes code, and `rune convert --check`
decides with it whether a Python file may be executed. Nothing here executes anything.
"""

from __future__ import annotations

import ast
import io
import tokenize
from typing import NoReturn

from rune.build import fn
from rune.build.expressions import Function
from rune.build.nodes import KEYWORDS

ROOTS = frozenset({"trigger", "item", "index", "error", "execution", "payload"})
"""The attributes of a workflow that are references."""

_CONSTRUCTORS = frozenset({*KEYWORDS, "node"})
_TEXTS = frozenset({"expr", "template"})
_RECORDS = frozenset({"Retry", "Settings", "Handler"})
IMPORTED = _CONSTRUCTORS | _TEXTS | {"Workflow", *_RECORDS, "fn"}
"""The names that the code may import. No variable may have one of them, so that each always means what `rune.build`
means by it; the writer names its variables by this rule too."""
_FUNCTIONS = frozenset(
    name
    for name, each in vars(fn).items()
    if isinstance(each, Function) or name in ("choose", "coalesce", "contains")
)
_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.BitAnd,
    ast.BitOr,
)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LITERALS = (str, bool, int, float, type(None))


class ForeignCodeError(Exception):
    """The code holds something else than the declaration of a workflow. `line` is where, `reason` what."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def check_code(source: str, *, operators: bool = True) -> None:
    """Raise ForeignCodeError unless the code only imports from `rune.build` and places nodes and edges, with literals
    and references as arguments. `operators` also permits operators on references and functions of the language."""
    encoded = source.encode("utf-8", "surrogatepass")
    try:
        # A comment may name another encoding, in which the text of a literal reads as code.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(encoded).readline)
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ForeignCodeError(error.lineno or 1, f"not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ForeignCodeError(1, f"not Python: {error}") from None
    if encoding != "utf-8":
        raise ForeignCodeError(1, f"the encoding {encoding}")
    _Checker(operators).module(tree)


class _Checker:
    def __init__(self, operators: bool) -> None:
        self._operators = operators
        self._imported: set[str] = set()
        self._made: set[str] = set()
        """The variables of the code: the workflow and the nodes."""
        self._flows: set[str] = set()
        """The variables that hold a workflow."""
        self._items: set[str] = set()
        """The variables that hold an item: `with split(…) as item`."""

    def module(self, tree: ast.Module) -> None:
        for statement in tree.body:
            self._statement(statement, placing=False)

    def _statement(self, statement: ast.stmt, *, placing: bool) -> None:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                return
            case ast.ImportFrom(module="rune.build", level=0) if not placing:
                self._import(statement)
            case ast.ImportFrom(module="__future__", level=0, names=[ast.alias(name="annotations")]):
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                self._place(call, "Workflow" if not placing else None)
                self._name(statement, name)
                if not placing:
                    self._flows.add(name)
            case ast.With(items=items, body=body):
                self._open(statement, items, placing=placing)
                for each in body:
                    self._statement(each, placing=True)
            case ast.Expr(value=ast.Call(func=ast.Name()) as call) if placing:
                self._place(call, None)
            case ast.Expr(value=value):
                self._edges(value)
            case _:
                self._refuse(statement)

    def _import(self, statement: ast.ImportFrom) -> None:
        for each in statement.names:
            if each.name not in IMPORTED or each.asname is not None:
                self._refuse(statement, f"the import of `{each.name}`")
            self._imported.add(each.name)

    def _name(self, place: ast.stmt, name: str) -> None:
        if name in IMPORTED or name.startswith("_"):
            self._refuse(place, f"the variable `{name}`")
        self._items.discard(name)
        self._flows.discard(name)
        self._made.add(name)

    def _open(self, place: ast.stmt, items: list[ast.withitem], *, placing: bool) -> None:
        for each in items:
            match each:
                case ast.withitem(context_expr=ast.Name(id=name), optional_vars=None) if name in self._made:
                    continue
                case ast.withitem(context_expr=ast.Call() as call, optional_vars=ast.Name(id=name)) if (
                    not placing
                ):
                    self._place(call, "Workflow")
                    self._name(place, name)
                    self._flows.add(name)
                case ast.withitem(context_expr=context, optional_vars=None | ast.Name() as target) if placing:
                    if isinstance(context, ast.Call):
                        self._place(context, None)
                    elif not (isinstance(context, ast.Name) and context.id in self._made):
                        self._refuse(context)
                    if target is not None:
                        self._name(place, target.id)
                        self._items.add(target.id)
                case _:
                    self._refuse(place)

    def _place(self, call: ast.Call, maker: str | None) -> None:
        """Check the call that makes a workflow or places a node."""
        permitted = _CONSTRUCTORS if maker is None else {maker}
        match call.func:
            case ast.Name(id=name) if name in permitted and name in self._imported:
                self._arguments(call)
            case _:
                self._refuse(call)

    def _arguments(self, call: ast.Call) -> None:
        for argument in call.args:
            self._value(argument)
        for each in call.keywords:
            if each.arg is None:
                self._refuse(call)
            self._value(each.value)

    def _value(self, value: ast.expr) -> None:
        """Check an argument: plain data, in which any value may be an expression."""
        match value:
            case ast.List(elts=elements):
                for each in elements:
                    self._value(each)
            case ast.Dict(keys=keys, values=values):
                for key in keys:
                    if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                        self._refuse(value)
                for each in values:
                    self._value(each)
            case ast.Call(func=ast.Name(id=name)) if name in _RECORDS and name in self._imported:
                self._arguments(value)
            case ast.JoinedStr(values=pieces):
                for piece in pieces:
                    self._piece(piece)
            case _ if _is_literal(value):
                return
            case _:
                self._expression(value)

    def _piece(self, piece: ast.expr) -> None:
        match piece:
            case ast.Constant(value=str()):
                return
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                self._expression(value)
            case _:
                self._refuse(piece)

    def _expression(self, value: ast.expr) -> None:
        """Check an expression of the language, which is a reference, `expr(…)`, or, with operators, built from them."""
        match value:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str())], keywords=[]) if (
                name in _TEXTS and name in self._imported
            ):
                return
            case ast.Attribute(value=ast.Name(id=name), attr=root) if name in self._flows and root in ROOTS:
                return
            case ast.Attribute(value=ast.Name(id=name), attr="out") if name in self._made - self._flows:
                return
            case ast.Name(id=name) if name in self._items:
                return
            case ast.Attribute(value=owner, attr=name) if not name.startswith("_"):
                self._expression(owner)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str() | int())):
                self._expression(owner)
            case _ if self._operators:
                self._operation(value)
            case _:
                self._refuse(value)

    def _operation(self, value: ast.expr) -> None:
        # One operand of each operation is an expression, so that Python itself computes nothing: `9 ** 9 ** 9`.
        match value:
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
                self._operands(value, left, right)
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if isinstance(
                operator, _COMPARISONS
            ):
                self._operands(value, left, right)
            case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
                self._expression(operand)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="fn"), attr=name), keywords=[]) if (
                name in _FUNCTIONS and "fn" in self._imported
            ):
                self._arguments(value)
            case _:
                self._refuse(value)

    def _operands(self, place: ast.expr, left: ast.expr, right: ast.expr) -> None:
        if _is_function(right):
            self._expression(left)
        elif _is_literal(left) and _is_literal(right):
            self._refuse(place)
        elif _is_literal(left):
            self._expression(right)
        else:
            self._expression(left)
            self._value(right)

    def _edges(self, value: ast.expr) -> None:
        """Check a statement that adds edges: `a >> b`, or `flow.edge(…)`."""
        match value:
            case ast.BinOp(left=left, op=ast.RShift(), right=right):
                self._end(right)
                self._edges(left) if isinstance(left, ast.BinOp) else self._start(left)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="edge")) if name in self._flows:
                for each in (*value.args, *(each.value for each in value.keywords)):
                    if not _is_literal(each):
                        self._end(each)
            case _:
                self._refuse(value)

    def _end(self, value: ast.expr) -> None:
        for each in value.elts if isinstance(value, ast.List) else [value]:
            if not (isinstance(each, ast.Name) and each.id in self._made):
                self._refuse(value)

    def _start(self, value: ast.expr) -> None:
        match value:
            case ast.List(elts=elements):
                for each in elements:
                    self._start(each)
            case ast.Name(id=name) if name in self._made:
                return
            case ast.Attribute(value=owner, attr="on_error" | "fallback"):
                self._start(owner)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str())):
                self._start(owner)
            case ast.Call(
                func=ast.Attribute(value=owner, attr="named"), args=[ast.Constant(value=str())], keywords=[]
            ):
                self._start(owner)
            case ast.Call(
                func=ast.Attribute(value=owner, attr="case"), args=[ast.Constant(value=int())], keywords=[]
            ):
                self._start(owner)
            case _:
                self._refuse(value)

    def _refuse(self, place: ast.stmt | ast.expr, what: str = "") -> NoReturn:
        shown = what or f"`{_shortened(ast.unparse(place))}`"
        raise ForeignCodeError(place.lineno, f"{shown} does more than declare a workflow")


def _is_literal(value: ast.expr) -> bool:
    match value:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return True
        case ast.Constant(value=found):
            return type(found) in _LITERALS
        case _:
            return False


def _is_function(value: ast.expr) -> bool:
    """Return whether an operand is a function of the language: `x | fn.upper`."""
    match value:
        case ast.Attribute(value=ast.Name(id="fn"), attr=name):
            return name in _FUNCTIONS
    return False


def _shortened(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= 60 else line[:59] + "…"
