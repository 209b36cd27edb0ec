"""JSON Schema for start payloads. Remote references are rejected, and patterns run on RE2 in linear time."""

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
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def check_schema(schema: dict[str, Any]) -> list[Problem]:
    """Return the problems of a schema, with paths under `inputs`."""
    problems = [_schema_problem(path, reason) for path, reason in _unsupported_parts(schema)]
    if problems:
        return problems
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return [_schema_problem("inputs" + _path_text(error.absolute_path), _shortened(error.message))]
    validator = _validator(schema)
    try:
        for sample in _SAMPLES:
            any(validator.iter_errors(sample))
    except RecursionError:
        return [_schema_problem("inputs", "the schema refers to itself endlessly")]
    except Unresolvable as error:
        return [_schema_problem("inputs", f"the reference `{error.ref}` cannot be resolved")]
    return []


def check_value(schema: dict[str, Any], value: Any) -> list[Problem]:
    """Return where a start payload violates its schema, at most `_MAX_REPORTED` problems."""
    problems: list[Problem] = []
    try:
        for error in _validator(schema).iter_errors(value):
            where = "/".join(str(each) for each in error.absolute_schema_path)
            path = "input" + _path_text(error.absolute_path)
            problems.append(
                Problem(path, codes.INPUT_MISMATCH, _shortened(error.message), f"see `inputs/{where}`")
            )
            if len(problems) == _MAX_REPORTED:
                break
    except (RecursionError, Unresolvable) as error:
        problems.append(_schema_problem("inputs", f"the schema cannot be applied: {error}"))
    return sorted(problems, key=lambda each: each.path)


def _unsupported_parts(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and reason of remote references, unsupported keywords and patterns that RE2 rejects."""
    for path, part in walk(schema, "inputs"):
        if not isinstance(part, dict):
            continue
        for name in _REFERENCES & part.keys():
            target = part[name]
            if isinstance(target, str) and not target.startswith("#"):
                yield (
                    f"{path}.{name}",
                    f"`{target}` is outside this document; remote references are not loaded",
                )
        if "unevaluatedProperties" in part and not path.endswith(".properties"):
            yield f"{path}.unevaluatedProperties", "`unevaluatedProperties` is not supported"
        patterns = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
        if isinstance(part.get("patternProperties"), dict):
            patterns += part["patternProperties"]
        for pattern in patterns:
            reason = _pattern_error(pattern)
            if reason is not None:
                yield path, f"the pattern `{_shortened(pattern)}` cannot be used: {reason}"


def _pattern_error(pattern: str) -> str | None:
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        return _shortened(error.args[0].decode() if isinstance(error.args[0], bytes) else str(error))
    return None


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)


def _matches(pattern: str, text: str) -> bool:
    return _compile_pattern(pattern).search(text) is not None


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
    """Check `uniqueItems` in linear time; the implementation of jsonschema compares each pair."""
    if rule and isinstance(value, list):
        seen: set[bytes] = set()
        for at, each in enumerate(value):
            form = msgspec.json.encode(_normalized(each), order="sorted")
            if form in seen:
                yield ValidationError(f"element {at} appears twice")
                return
            seen.add(form)


def _normalized(value: Any) -> Any:
    """Return the value with 1.0 written as 1: JSON Schema treats them as equal."""
    if isinstance(value, float) and value.is_integer():
        return int(value) if abs(value) < 2**63 else value
    if isinstance(value, list):
        return [_normalized(each) for each in value]
    if isinstance(value, dict):
        return {key: _normalized(each) for key, each in value.items()}
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


def _schema_problem(path: str, message: str) -> Problem:
    return Problem(
        path, codes.BAD_SCHEMA, message, "`inputs` is a self-contained JSON Schema (draft 2020-12)"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"


def _path_text(parts: Any) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts)
