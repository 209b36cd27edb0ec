"""Declaration of a node type: JSON Schema and check from its parameter model, and how editors present it.

The check reports every problem; msgspec's conversion stops at the first. Icons are names of the Lucide set. Widgets
name the control that fits a parameter where its JSON Schema does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import inspect

from rune.core.definition import problems
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.node_type import NodeType, ParameterKind

Widget = Literal[
    "assignments",
    "condition",
    "cron",
    "edge",
    "edges",
    "expression",
    "html",
    "json",
    "messages",
    "rules",
    "text",
    "timezone",
    "version",
    "workflow",
]

_HTTP_CREDENTIALS = ("basic", "bearer", "header", "api_key", "oauth2")

Dynamic = Callable[[str], bool]
"""Whether a text is an expression or template, whose type is known only at run time."""

Extra = Callable[[Mapping[str, Any]], list[Problem]]
"""Checks combinations of parameters. Called only if each parameter is valid by itself."""

Check = Callable[[Mapping[str, Any], Dynamic], tuple[Problem, ...]]

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
"""Comparison operators of rules; `exists` evaluates only its left operand."""

Unit = Literal["seconds", "minutes", "hours", "days"]

Scalar = str | int | float | bool | None

Items = Annotated[
    list[Any] | msgspec.UnsetType,
    msgspec.Meta(description="The list to work on. Default: the payload, `$json`."),
]

_NUMBER_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of")
_TEXT_BOUNDS = ("min_length", "max_length", "pattern")


def _fields(**kinds: Any) -> dict[str, Any]:
    """Return the schema of an object that has all of these fields."""
    fields = {name: {"type": kind} if isinstance(kind, str | list) else kind for name, kind in kinds.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


_ITEMS = _fields(items="array", count="integer", original_count="integer")

PRESENTATION: Mapping[str, Mapping[str, Any]] = {
    "manual": {"category": "trigger", "icon": "play"},
    "input": {"category": "trigger", "icon": "log-in"},
    "webhook": {
        "category": "trigger",
        "icon": "webhook",
        "output_schema": _fields(method="string", headers="object", query="object", body={}),
        "credential_types": ("basic", "bearer", "header", "api_key", "custom"),
    },
    "schedule": {
        "category": "trigger",
        "icon": "calendar-clock",
        "output_schema": _fields(scheduled_at="string"),
        "widgets": {"cron": "cron", "timezone": "timezone"},
    },
    "conditional": {
        "category": "control",
        "icon": "git-branch",
        "output_schema": _fields(result="boolean"),
        "widgets": {"expression": "condition", "true_edge_id": "edge", "false_edge_id": "edge"},
    },
    "switch": {
        "category": "control",
        "icon": "list-tree",
        "output_schema": _fields(output_index="integer", matched_rule=["object", "null"]),
        "widgets": {"rules": "rules", "routes": "edges"},
    },
    "split": {"category": "control", "icon": "split", "widgets": {"input_array": "expression"}},
    "aggregator": {"category": "control", "icon": "combine", "output_schema": {"type": "array"}},
    "merge": {"category": "control", "icon": "merge"},
    "wait": {"category": "control", "icon": "hourglass"},
    "workflow": {
        "category": "control",
        "icon": "workflow",
        "widgets": {"workflow": "workflow", "version": "version", "input": "json"},
    },
    "noop": {"category": "control", "icon": "circle"},
    "fail": {"category": "control", "icon": "octagon-x", "widgets": {"message": "text"}},
    "output": {"category": "control", "icon": "log-out", "widgets": {"value": "json"}},
    "edit": {
        "category": "data",
        "icon": "pencil",
        "widgets": {"assignments": "assignments", "from": "expression"},
    },
    "filter": {
        "category": "data",
        "icon": "filter",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression", "expression": "expression", "rules": "rules"},
    },
    "sort": {
        "category": "data",
        "icon": "arrow-down-up",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression", "expression": "expression", "rules": "rules"},
    },
    "limit": {
        "category": "data",
        "icon": "list-end",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression"},
    },
    "datetime": {
        "category": "data",
        "icon": "calendar",
        "output_schema": _fields(result={}, iso="string", unix="number", timezone="string"),
        "widgets": {"timezone": "timezone"},
    },
    "log": {"category": "data", "icon": "scroll-text", "widgets": {"message": "text"}},
    "http": {
        "category": "integration",
        "icon": "globe",
        "output_schema": _fields(status="integer", body={}, headers="object", duration_ms="integer"),
        "credential_types": _HTTP_CREDENTIALS,
        "widgets": {"body": "json"},
    },
    "smtp": {
        "category": "integration",
        "icon": "mail",
        "output_schema": _fields(sent="boolean", message_id="string", accepted="array", rejected="array"),
        "credential_types": ("smtp",),
        "widgets": {"body": "text", "html": "html"},
    },
    "llm_service": {
        "category": "integration",
        "icon": "sparkles",
        "output_schema": _fields(text=["string", "null"], json={}, usage={}),
        "credential_types": _HTTP_CREDENTIALS,
        "widgets": {"prompt": "text", "system": "text", "messages": "messages", "json_schema": "json"},
    },
}
"""Fields of built-in node types by name; a declaration may state others."""


class ParameterCheck:
    """Checks values against declared types and collects all problems."""

    def __init__(self, dynamic: Dynamic, *, strict: bool) -> None:
        self._dynamic = dynamic
        self._strict = strict
        self._is_literal = False
        self.problems: list[Problem] = []

    def parameters(
        self, values: Mapping[str, Any], struct: inspect.StructType, kinds: Mapping[str, ParameterKind]
    ) -> None:
        """Check all parameters of a node. Dynamic text is valid except where it would not be evaluated."""
        self._names(values, struct, "")
        for field in struct.fields:
            name = field.encode_name
            if name in values:
                kind = kinds.get(name, "template")
                self._is_literal = kind in {"literal", "expression"} or (
                    kind == "element" and isinstance(values[name], str)
                )
                self._check(values[name], field.type, name)

    def _check(self, value: Any, expected: inspect.Type, path: str) -> None:
        if isinstance(value, str) and not self._is_literal and self._dynamic(value):
            return
        kinds = _alternatives(expected)
        if isinstance(value, list):
            for kind in kinds:
                if isinstance(kind, inspect.ListType):
                    self._list(value, kind, path)
                    return
        elif isinstance(value, dict):
            for kind in kinds:
                if isinstance(kind, inspect.StructType):
                    self._struct(value, kind, path)
                    return
                if isinstance(kind, inspect.DictType):
                    for key, each in value.items():
                        self._check(each, kind.value_type, f"{path}.{key}")
                    return
        if not any(self._leaf_matches(value, kind) for kind in kinds):
            self._report_mismatch(value, kinds, path)

    def _struct(self, value: Mapping[str, Any], struct: inspect.StructType, path: str) -> None:
        self._names(value, struct, path)
        for field in struct.fields:
            if field.encode_name in value:
                self._check(value[field.encode_name], field.type, f"{path}.{field.encode_name}")

    def _names(self, value: Mapping[str, Any], struct: inspect.StructType, path: str) -> None:
        known = {field.encode_name: field for field in struct.fields}
        for key in value:
            if key not in known:
                self._report(
                    problems.UNKNOWN_PARAMETER,
                    _join(path, key),
                    f"unknown parameter `{key}`",
                    did_you_mean(key, known),
                )
        for name, field in known.items():
            if field.required and name not in value:
                expected = _describe_all(_alternatives(field.type))
                self._report(
                    problems.MISSING_PARAMETER,
                    _join(path, name),
                    f"`{name}` is required",
                    f"give it {expected}",
                )

    def _list(self, value: list[Any], kind: inspect.ListType, path: str) -> None:
        if kind.min_length is not None and len(value) < kind.min_length:
            self._report_mismatch(value, (kind,), path)
        for index, each in enumerate(value):
            self._check(each, kind.item_type, f"{path}[{index}]")

    def _leaf_matches(self, value: Any, kind: inspect.Type) -> bool:
        if isinstance(kind, inspect.AnyType):
            return True
        annotation = _leaf(kind)
        if annotation is None:
            return False
        try:
            msgspec.convert(value, annotation, strict=self._strict)
        except msgspec.ValidationError:
            return False
        return True

    def _report_mismatch(self, value: Any, kinds: tuple[inspect.Type, ...], path: str) -> None:
        literals = [
            str(each) for kind in kinds if isinstance(kind, inspect.LiteralType) for each in kind.values
        ]
        hint = did_you_mean(value, literals) if literals and isinstance(value, str) else ""
        if isinstance(value, str) and self._is_literal and self._dynamic(value):
            hint = "expressions are not evaluated in this parameter: it is read before the execution starts"
        message = f"{_describe_all(kinds)} expected, found {describe_value(value)}"
        self._report(problems.BAD_PARAMETER, path, message, hint)

    def _report(self, code: str, path: str, message: str, hint: str) -> None:
        self.problems.append(Problem(path, code, message, hint))


def describe_value(value: Any) -> str:
    """Describe a value in an error message: short, with its type."""
    if isinstance(value, str):
        return f"the text {_truncate(value)}"
    if isinstance(value, bool) or value is None:
        return msgspec.json.encode(value).decode()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object"


def problem_text(error: msgspec.ValidationError, root: str) -> str:
    """Format an error of msgspec with the path first, like all other problems."""
    message, _, path = str(error).partition(" - at `$")
    return f"{root}{path.removesuffix('`')}: {message}"


def _truncate(text: str) -> str:
    return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}…`"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return tuple(each for part in kind.types for each in _alternatives(part))
    return (kind,)


def _leaf(kind: inspect.Type) -> Any:
    """Return the annotation of a scalar type with its constraints; None for a container."""
    if isinstance(kind, inspect.LiteralType):
        return Literal[kind.values]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        base: Any = int if isinstance(kind, inspect.IntType) else float
        return _constrained(base, kind, _NUMBER_BOUNDS)
    if isinstance(kind, inspect.StrType):
        return _constrained(str, kind, _TEXT_BOUNDS)
    if isinstance(kind, inspect.BoolType):
        return bool
    return Literal[None] if isinstance(kind, inspect.NoneType) else None


def _constrained(base: Any, kind: inspect.Type, names: tuple[str, ...]) -> Any:
    bounds = {name: getattr(kind, name) for name in names if getattr(kind, name) is not None}
    return Annotated[base, msgspec.Meta(**bounds)] if bounds else base


def _describe_all(kinds: tuple[inspect.Type, ...]) -> str:
    return " or ".join(_describe(each) for each in kinds)


def _describe(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(f"`{each}`" for each in kind.values)
    if isinstance(kind, inspect.IntType):
        return "a whole number" + _bounds(kind)
    if isinstance(kind, inspect.FloatType):
        return "a number" + _bounds(kind)
    if isinstance(kind, inspect.StrType):
        if kind.pattern:
            return f"text matching `{kind.pattern}`"
        return "non-empty text" if kind.min_length else "text"
    if isinstance(kind, inspect.ListType):
        return "a non-empty list" if kind.min_length else "a list"
    names: dict[type, str] = {
        inspect.BoolType: "true or false",
        inspect.NoneType: "null",
        inspect.AnyType: "any value",
    }
    return names.get(type(kind), "an object")


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    """Return the bounds of a number; whole ones have thousands separators."""
    words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    bounds = [(word, getattr(kind, name)) for name, word in words.items()]
    parts = [
        f"{word} {bound:,.0f}" if float(bound).is_integer() else f"{word} {bound:g}"
        for word, bound in bounds
        if bound is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""


class Schema(Mapping[str, Any]):
    """The JSON Schema of a parameter model, built on first access because startup does not need it."""

    def __init__(self, parameters: type[msgspec.Struct]) -> None:
        self._parameters = parameters

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return parameter_schema(self._parameters)

    def __getitem__(self, key: str) -> Any:
        return self._schema[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schema)

    def __len__(self) -> int:
        return len(self._schema)

    def __repr__(self) -> str:
        return repr(self._schema)


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all parameter models: immutable, without unknown fields."""


def declare(
    name: str,
    parameters: type[msgspec.Struct],
    *,
    kinds: Mapping[str, ParameterKind] | None = None,
    lax: bool = False,
    extra: Extra | None = None,
    **traits: Any,
) -> NodeType:
    """Declare a node type; its schema and check are derived from `parameters`.

    `lax` accepts numbers and booleans written as text; `traits` are further fields of the node type.
    """
    kinds = kinds or {}
    return NodeType(
        **{**PRESENTATION.get(name, {}), **traits},
        name=name,
        schema=Schema(parameters),
        kinds=kinds,
        lax=lax,
        check=_checker(parameters, kinds, lax, extra),
    )


def parameter_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a parameter model with references inlined."""
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
            checker = ParameterCheck(dynamic, strict=strict)
            checker.parameters(values, struct(), kinds)
            if checker.problems:
                return tuple(checker.problems)
        return tuple(extra(values)) if extra else ()

    return check


def plain(value: Any) -> str:
    """Return a scalar as text in JSON notation; text stays as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def missing(name: str, message: str, hint: str) -> Problem:
    """Report a parameter that other parameters require."""
    return Problem(name, problems.MISSING_PARAMETER, message, hint)


def conflicting(name: str, message: str, hint: str) -> Problem:
    """Report a parameter that conflicts with another."""
    return Problem(name, problems.BAD_PARAMETER, message, hint)


def either(parameters: Mapping[str, Any], one: str, other: str, *, required: bool) -> list[Problem]:
    """Check that two mutually exclusive parameters are not both given, nor both missing if `required`."""
    given = [name for name in (one, other) if parameters.get(name) is not None]
    if len(given) == 2:
        return [conflicting(other, f"`{one}` and `{other}` are both given", f"give `{one}` or `{other}`")]
    if required and not given:
        return [missing(one, f"neither `{one}` nor `{other}` is given", f"give `{one}` or `{other}`")]
    return []
