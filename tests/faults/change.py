"""Changes to the product that are made while it is imported: one function, method or constant each.

A change names its target as `package.module:Class.method` and builds the replacement from the original. No source file
is touched and no copy is made, so code may be moved or reformatted without breaking a fault.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple


class StaleFaultError(Exception):
    """A change no longer fits the function that it is meant for."""


class Change(NamedTuple):
    """One attribute of a module or class, and how its replacement is made from the original."""

    target: str
    make: Callable[[Any], Any]

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    def apply(self, module: ModuleType) -> None:
        """Replace the target in a module that was just executed."""
        *owners, name = self.target.partition(":")[2].split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each, None)
        if owner is None or name not in vars(owner):
            raise StaleFaultError(f"{self.target} does not exist")
        setattr(owner, name, self.make(vars(owner)[name]))


def replace(target: str, make: Callable[[Any], Any]) -> Change:
    """Replace a function by `make(original)`."""
    return Change(target, make)


def adjust(target: str, change: Callable[..., Any]) -> Change:
    """Replace a function by one that returns `change(result, *arguments)` of the original's result."""

    def make(original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            async def adjusted_async(*arguments: Any, **options: Any) -> Any:
                return change(await original(*arguments, **options), *arguments, **options)

            return adjusted_async

        def adjusted(*arguments: Any, **options: Any) -> Any:
            return change(original(*arguments, **options), *arguments, **options)

        return adjusted

    return Change(target, make)


def skip(target: str, result: Any = None) -> Change:
    """Replace a function by one that does nothing and returns `result`."""
    return Change(target, lambda original: _stub(original, result))


def constant(target: str, value: Any) -> Change:
    """Give a module constant or a class attribute another value."""

    def make(original: Any) -> Any:
        if original == value:
            raise StaleFaultError(f"{target} is {value!r} already")
        return value

    return Change(target, make)


def edit(target: str, *pairs: tuple[str, str]) -> Change:
    """Replace fragments inside of one function, for defects that no wrapper can cause.

    Each pair is an expression and the expression that takes its place, or statements and the statements that do (an
    empty text removes them). Fragments are compared as syntax trees: layout and comments do not matter.
    """
    return Change(target, lambda original: _edited(original, target, pairs))


def _stub(original: Any, result: Any) -> Any:
    function = original.__func__ if isinstance(original, staticmethod | classmethod) else original
    if inspect.iscoroutinefunction(function):

        async def nothing_async(*_args: Any, **_options: Any) -> Any:
            return result

        return nothing_async

    def nothing(*_args: Any, **_options: Any) -> Any:
        return result

    return staticmethod(nothing) if isinstance(original, staticmethod) else nothing


def _edited(original: Any, target: str, pairs: Iterable[tuple[str, str]]) -> Any:
    function = original
    if isinstance(original, staticmethod | classmethod):
        function = original.__func__
    elif isinstance(original, property):
        function = original.fget
    function = inspect.unwrap(function)
    module = sys.modules[function.__module__]
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for old, new in pairs:
        edited = _replace_fragment(tree, old, new)
        if edited != 1:
            raise StaleFaultError(f"{target} contains {edited} times: {old.strip().splitlines()[0]}")
    ast.fix_missing_locations(tree)
    code = compile(
        tree, f"<fault in {target}>", "exec", __future__.annotations.compiler_flag, dont_inherit=True
    )
    namespace: dict[str, Any] = {}
    exec(code, vars(module), namespace)
    made = namespace[function.__name__]
    if getattr(made, "__closure__", None) is None and "__class__" in function.__code__.co_freevars:
        raise StaleFaultError(f"{target} calls super() and cannot be edited")
    return made


def _replace_fragment(tree: ast.Module, old: str, new: str) -> int:
    """How many fragments were found; all of them are replaced."""
    fragment, replacement = ast.parse(textwrap.dedent(old)).body, ast.parse(textwrap.dedent(new)).body
    if len(fragment) == len(replacement) == 1:
        first, second = fragment[0], replacement[0]
        if isinstance(first, ast.Expr) and isinstance(second, ast.Expr):
            visitor = _ReplaceExpression(first.value, second.value)
            visitor.visit(tree)
            return visitor.found
    return sum(_replace_statements(node, fragment, replacement) for node in list(ast.walk(tree)))


class _ReplaceExpression(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old, self._new, self.found = ast.dump(old), new, 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and ast.dump(node) == self._old:
            self.found += 1
            return self._new
        return self.generic_visit(node)


def _replace_statements(node: ast.AST, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    wanted, found = [ast.dump(each) for each in old], 0
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if not isinstance(body, list):
            continue
        for start in range(len(body) - len(wanted), -1, -1):
            if [ast.dump(each) for each in body[start : start + len(wanted)]] == wanted:
                body[start : start + len(wanted)] = new
                found += 1
        if found and not body and field == "body":
            body.append(ast.Pass())
    return found


def check(changes: Iterable[Change]) -> None:
    """Import each target and build its replacement without installing it; raise if one is stale."""
    for change in changes:
        module = importlib.import_module(change.module)
        *owners, name = change.target.partition(":")[2].split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each, None)
        if owner is None or name not in vars(owner):
            raise StaleFaultError(f"{change.target} does not exist")
        if change.make(vars(owner)[name]) is vars(owner)[name]:
            raise StaleFaultError(f"{change.target} stays as it is")
