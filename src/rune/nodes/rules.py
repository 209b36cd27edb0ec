"""Pieces that the parameters of several node types share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from rune.core import codes
from rune.core.problem import Problem

Operator = Literal[
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "contains",
    "in",
    "starts_with",
    "ends_with",
    "matches",
    "exists",
    "eq",
    "neq",
    "gt",
    "gte",
    "lt",
    "lte",
]
"""How a rule compares; `exists` looks at its left side only."""

Unit = Literal["seconds", "minutes", "hours", "days"]

Scalar = str | int | float | bool | None

Items = Annotated[
    list[Any] | msgspec.UnsetType,
    msgspec.Meta(description="The list to work on. Default: the payload, `$json`."),
]


def plain(value: Any) -> str:
    """A scalar as text, the way JSON writes it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def missing(name: str, message: str, hint: str) -> Problem:
    """A parameter that the others make necessary."""
    return Problem(name, codes.MISSING_PARAMETER, message, hint)


def conflicting(name: str, message: str, hint: str) -> Problem:
    """A parameter that contradicts another."""
    return Problem(name, codes.BAD_PARAMETER, message, hint)


def either(parameters: Mapping[str, Any], one: str, other: str, *, required: bool) -> list[Problem]:
    """Problems of two parameters of which one, and not both, may be given."""
    given = [name for name in (one, other) if parameters.get(name) is not None]
    if len(given) == 2:
        return [conflicting(other, f"`{one}` and `{other}` are both given", f"give `{one}` or `{other}`")]
    if required and not given:
        return [missing(one, f"neither `{one}` nor `{other}` is given", f"give `{one}` or `{other}`")]
    return []
