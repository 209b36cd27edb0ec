"""The registration of functions, and the checks of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from rune.core.expr.budget import ExpressionError
from rune.core.expr.values import is_number, kind_name


class Function(msgspec.Struct, frozen=True):
    """One function of the language.

    `call` takes the evaluation and the arguments. `most` is None if the number of arguments is unlimited; `keywords`
    are the parameters that can be passed by name, with their positions. `example` evaluates to the JSON in `result`.
    """

    name: str
    signature: str
    doc: str
    example: str
    call: Callable[..., Any]
    group: str
    result: str
    least: int
    most: int | None
    keywords: dict[str, int]
    pure: bool


class Table:
    """The functions of one group, collected by a decorator."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.functions: dict[str, Function] = {}

    def add(
        self, signature: str, doc: str, example: str, result: str, *, pure: bool = True
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the decorated function under the name in its signature."""

        def register(call: Callable[..., Any]) -> Callable[..., Any]:
            name = signature.partition("(")[0]
            parameters = list(inspect.signature(call).parameters.values())[1:]
            positional = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
            variadic = len(positional) < len(parameters)
            self.functions[name] = Function(
                name=name,
                signature=signature,
                doc=doc,
                example=example,
                call=call,
                group=self.group,
                result=result,
                least=sum(1 for p in positional if p.default is p.empty),
                most=None if variadic else len(positional),
                keywords={p.name: at for at, p in enumerate(positional) if p.kind is p.POSITIONAL_OR_KEYWORD},
                pure=pure,
            )
            return call

        return register


def text_of(value: Any, name: str) -> str:
    """Return an argument that must be text."""
    if type(value) is str:
        return value
    raise ExpressionError(f"{name}() takes text, not {kind_name(value)}")


def list_of(value: Any, name: str) -> list[Any]:
    """Return an argument that must be a list."""
    if type(value) is list:
        return value
    raise ExpressionError(f"{name}() takes a list, not {kind_name(value)}")


def object_of(value: Any, name: str) -> dict[str, Any]:
    """Return an argument that must be an object."""
    if type(value) is dict:
        return value
    raise ExpressionError(f"{name}() takes an object, not {kind_name(value)}")


def number_of(value: Any, name: str) -> int | float:
    """Return an argument that must be a number."""
    if is_number(value):
        number: int | float = value
        return number
    raise ExpressionError(f"{name}() takes a number, not {kind_name(value)}")


def whole_of(value: Any, name: str) -> int:
    """Return an argument that must be a whole number."""
    if type(value) is int:
        return value
    raise ExpressionError(f"{name}() takes a whole number, not {kind_name(value)}")
