"""JSON Schema for start payloads: nothing is fetched, and every pattern runs on RE2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import re2
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import walk

_MAX_REPORTED = 50
_MAX_SHOWN_CHARS = 200
_SAMPLES: tuple[Any, ...] = (None, 0, "", [], {}, [0], {"a": 0})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def check_schema(schema: dict[str, Any]) -> list[Problem]:
    """What is wrong with a schema, at its place under `inputs`."""
    problems = [_bad(path, reason) for path, reason in _unusable(schema)]
    if problems:
        return problems
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return [_bad("inputs" + _path(error.absolute_path), _short(error.message))]
    validator = _validator(schema)
    try:
        for sample in _SAMPLES:
            any(validator.iter_errors(sample))
    except RecursionError:
        return [_bad("inputs", "the schema refers to itself without end")]
    except Unresolvable as error:
        return [_bad("inputs", f"the reference `{error.ref}` leads nowhere")]
    return []


def check_value(schema: dict[str, Any], value: Any) -> list[Problem]:
    """How a start payload differs from its schema; the first fifty differences."""
    problems: list[Problem] = []
    try:
        for error in _validator(schema).iter_errors(value):
            where = "/".join(str(each) for each in error.absolute_schema_path)
            path = "input" + _path(error.absolute_path)
            problems.append(
                Problem(path, codes.INPUT_MISMATCH, _short(error.message), f"see `inputs/{where}`")
            )
            if len(problems) == _MAX_REPORTED:
                break
    except (RecursionError, Unresolvable) as error:
        problems.append(_bad("inputs", f"the schema cannot be applied: {error}"))
    return sorted(problems, key=lambda each: each.path)


def _unusable(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """References that would be fetched, and patterns that RE2 does not take."""
    for path, part in walk(schema, "inputs"):
        if not isinstance(part, dict):
            continue
        for name in _REFERENCES & part.keys():
            target = part[name]
            if isinstance(target, str) and not target.startswith("#"):
                yield f"{path}.{name}", f"`{target}` is outside of this document, and nothing is fetched"
        if "unevaluatedProperties" in part and not path.endswith(".properties"):
            yield f"{path}.unevaluatedProperties", "`unevaluatedProperties` is not supported"
        patterns = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
        if isinstance(part.get("patternProperties"), dict):
            patterns += part["patternProperties"]
        for pattern in patterns:
            reason = _refused_pattern(pattern)
            if reason is not None:
                yield path, f"the pattern `{_short(pattern)}` cannot be used: {reason}"


def _refused_pattern(pattern: str) -> str | None:
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        return _short(error.args[0].decode() if isinstance(error.args[0], bytes) else str(error))
    return None


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def _pattern(validator: Validator, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any
) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for pattern, part in patterns.items():
            for key, each in value.items():
                if _matches(pattern, key):
                    yield from validator.descend(each, part, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    extra = [key for key in value if key not in known and not any(_matches(each, key) for each in patterns)]
    if isinstance(rule, dict):
        for key in extra:
            yield from validator.descend(value[key], rule, path=key)
    elif not rule:
        for key in extra:
            yield ValidationError(f"{key!r} is not expected here")


def _unique_items(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """In linear time: the usual way compares each pair."""
    if rule and isinstance(value, list):
        seen: set[bytes] = set()
        for at, each in enumerate(value):
            form = msgspec.json.encode(_alike(each), order="sorted")
            if form in seen:
                yield ValidationError(f"element {at} appears twice")
                return
            seen.add(form)


def _alike(value: Any) -> Any:
    """The same value with 1.0 written as 1, which JSON Schema takes for equal."""
    if isinstance(value, float) and value.is_integer():
        return int(value) if abs(value) < 2**63 else value
    if isinstance(value, list):
        return [_alike(each) for each in value]
    if isinstance(value, dict):
        return {key: _alike(each) for key, each in value.items()}
    return value


_Strict = validators.extend(  # type: ignore[no-untyped-call,unused-ignore]
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    },
)


def _validator(schema: dict[str, Any]) -> Validator:
    registry: Any = Registry().with_resource("", DRAFT202012.create_resource(schema))
    validator: Validator = _Strict(schema, registry=registry)
    return validator


def _bad(path: str, message: str) -> Problem:
    return Problem(
        path, codes.BAD_SCHEMA, message, "`inputs` is a JSON Schema (draft 2020-12) that stands alone"
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"


def _path(parts: Any) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts)
