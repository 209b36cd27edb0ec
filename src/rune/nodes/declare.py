"""Builds the declaration of a node type from its typed parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import msgspec
from msgspec import inspect

from rune.core.nodetype import NodeType, ParameterKind
from rune.core.problem import Problem
from rune.nodes.fit import Dynamic, Fit

Extra = Callable[[Mapping[str, Any]], list[Problem]]
"""What no single parameter shows: combinations. Called only with parameters that fit one by one."""

Check = Callable[[Mapping[str, Any], Dynamic], tuple[Problem, ...]]


class Schema(Mapping[str, Any]):
    """The JSON Schema of a parameter model, made when somebody looks at it: starting does not."""

    def __init__(self, parameters: type[msgspec.Struct]) -> None:
        self._parameters = parameters

    @cached_property
    def _made(self) -> dict[str, Any]:
        return parameter_schema(self._parameters)

    def __getitem__(self, key: str) -> Any:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return repr(self._made)


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all parameter models: never changed, strict about names."""


def declare(
    name: str,
    parameters: type[msgspec.Struct],
    *,
    kinds: Mapping[str, ParameterKind] | None = None,
    lax: bool = False,
    extra: Extra | None = None,
    **traits: Any,
) -> NodeType:
    """A node type whose schema and check follow from `parameters`. `lax` takes numbers and booleans written
    as text; `traits` are further fields of the node type."""
    kinds = kinds or {}
    return NodeType(
        name=name,
        schema=Schema(parameters),
        kinds=kinds,
        check=_checker(parameters, kinds, lax, extra),
        **traits,
    )


def parameter_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of a parameter model, without references."""
    (schema,), definitions = msgspec.json.schema_components([parameters], ref_template="{name}")
    inlined: dict[str, Any] = _inline(schema, definitions)
    inlined.pop("title", None)
    return inlined


def _inline(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inline(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        rest = {key: each for key, each in part.items() if key != "$ref"}
        return _inline({**definitions[part["$ref"]], **rest}, definitions)
    return {key: _inline(each, definitions) for key, each in part.items()}


def _checker(
    parameters: type[msgspec.Struct], kinds: Mapping[str, ParameterKind], lax: bool, extra: Extra | None
) -> Check:
    strict = not lax

    @cache
    def struct() -> inspect.StructType:
        found = inspect.type_info(parameters)
        assert isinstance(found, inspect.StructType)
        return found

    def check(values: Mapping[str, Any], dynamic: Dynamic) -> tuple[Problem, ...]:
        try:
            msgspec.convert(values, parameters, strict=strict)
        except msgspec.ValidationError:
            fit = Fit(dynamic, strict=strict)
            fit.parameters(values, struct(), kinds)
            if fit.problems:
                return tuple(fit.problems)
        return tuple(extra(values)) if extra else ()

    return check
