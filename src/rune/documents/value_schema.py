"""The check of values against JSON Schemas (draft 2020-12), with a limit on its work.

Schemas and values come from clients, and a schema of a kilobyte can demand work without end: references multiply what
is applied to one value, and each keyword reads the value again. So every step is charged to a meter before it is done,
and the check ends with an error when the meter is empty. The algorithms are linear: `enum`, `const` and `uniqueItems`
compare hashes of canonical texts, patterns run on RE2, and what a message shows of a value is bounded.

`unusable_parts` finds what is wrong with a schema without applying it: wrong types of keywords, references that lead
nowhere or in a circle, and references that apply too many schemas to one value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any
from urllib.parse import unquote

import msgspec

from rune.core.expr import ExpressionError, Meter, TimeBudgetError
from rune.core.expr.patterns import compiled, found_in

MAX_APPLIED = 10_000
"""Schemas that references may apply to one value."""
MAX_CHAIN = 50
"""Schemas within each other that apply to one value, along references."""
MAX_DEPTH = 160
"""Schemas within each other, along references and into the value."""

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]
Anchors = dict[tuple[int, str], Schema]

_STEP_NS = 1_500
_READ_NS = 5
_MAX_SHOWN = 3


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: value is True or value is False,
    "integer": lambda value: _is_number(value) and (type(value) is int or value.is_integer()),
    "number": _is_number,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}


class UnusableSchemaError(Exception):
    """A schema cannot be applied: a reference leads nowhere, or the schemas lie too deep within each other."""


class Mismatch(msgspec.Struct, frozen=True):
    """Where a value does not match, which part of the schema demands it, and why."""

    path: Path
    part: Path
    message: str


class _Enough(Exception):  # noqa: N818 - not an error
    """As many mismatches as wanted are found."""


class _Place(msgspec.Struct, frozen=True):
    """Where the check is: in the value, in the schema, and the schema that references are relative to."""

    value: Path
    part: Path
    base: Schema

    def into(self, key: str | int, *part: str | int) -> _Place:
        return _Place((*self.value, key), (*self.part, *part), self.base)

    def at(self, *part: str | int) -> _Place:
        return _Place(self.value, (*self.part, *part), self.base)


class Check:
    """One check of a value."""

    def __init__(self, schema: Schema, meter: Meter, limit: int) -> None:
        self._root = schema
        self._meter = meter
        self._limit = limit
        self._depth = 0
        self._sets: dict[int, frozenset[bytes]] = {}
        self._targets: dict[tuple[int, str], tuple[Any, Schema]] = {}
        self._anchors: Anchors | None = None
        self._silent = 0
        self.found: list[Mismatch] = []

    def run(self, value: Any) -> list[Mismatch]:
        """Return where the value does not match."""
        try:
            self._apply(self._root, value, _Place((), (), self._root))
        except _Enough:
            pass
        except RecursionError:
            raise UnusableSchemaError(f"the schemas are nested too deeply (limit: {MAX_DEPTH})") from None
        return self.found

    # Reports

    def _fail(self, place: _Place, message: str) -> bool:
        if not self._silent:
            self.found.append(Mismatch(place.value, place.part, message))
            if len(self.found) >= self._limit:
                raise _Enough
        return False

    def _matches(self, schema: Any, value: Any, place: _Place) -> bool:
        """Return whether a value matches, without a report."""
        self._silent += 1
        try:
            return self._apply(schema, value, place)
        finally:
            self._silent -= 1

    # Application

    def _apply(self, schema: Any, value: Any, place: _Place) -> bool:
        if schema is True:
            return True
        if schema is False:
            return self._fail(place, f"{_shown(value)} is not expected here")
        self._meter.charge(_STEP_NS * (1 + len(schema)))
        if self._depth >= MAX_DEPTH:
            raise UnusableSchemaError(f"the schemas are nested too deeply (limit: {MAX_DEPTH})")
        if _names_resource(schema):
            place = _Place(place.value, place.part, schema)
        self._depth += 1
        valid = True
        try:
            for key in schema:
                keyword = _KEYWORDS.get(key)
                if keyword is not None and not keyword(self, schema, value, place):
                    valid = False
                    if self._silent:
                        break
        finally:
            self._depth -= 1
        return valid

    def _target(self, reference: str, base: Schema) -> tuple[Any, Schema]:
        key = (id(base), reference)
        if key not in self._targets:
            if self._anchors is None:
                self._anchors = _find_anchors(self._root, self._meter)
            self._targets[key] = _find_target(reference, base, self._root, self._anchors)
        return self._targets[key]

    def follow(self, schema: Schema, value: Any, place: _Place, word: str) -> bool:
        target, base = self._target(schema[word], place.base)
        return self._apply(target, value, _Place(place.value, (*place.part, word), base))

    # Keywords of any value

    def kind(self, schema: Schema, value: Any, place: _Place) -> bool:
        kinds = schema["type"]
        names = [kinds] if isinstance(kinds, str) else kinds
        if any(_TYPES[each](value) for each in names):
            return True
        return self._fail(place.at("type"), f"{_shown(value)} is not of type {', '.join(map(repr, names))}")

    def enum(self, schema: Schema, value: Any, place: _Place) -> bool:
        known = self._sets.get(id(schema))
        if known is None:
            known = self._sets[id(schema)] = frozenset(self._canonical(each) for each in schema["enum"])
        if self._canonical(value) in known:
            return True
        return self._fail(place.at("enum"), f"{_shown(value)} is not one of {_shown(schema['enum'])}")

    def const(self, schema: Schema, value: Any, place: _Place) -> bool:
        if self._canonical(value) == self._canonical(schema["const"]):
            return True
        return self._fail(place.at("const"), f"{_shown(schema['const'])} was expected")

    def _canonical(self, value: Any) -> bytes:
        """Return a text that equal values have in common, in which 1.0 is 1. Hashes of texts cannot be foreseen."""
        return msgspec.json.encode(self._normalized(value), order="sorted")

    def _normalized(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            self._meter.charge(_STEP_NS * (1 + len(value)))
            return [self._normalized(each) for each in value]
        if kind is dict:
            self._meter.charge(_STEP_NS * (1 + len(value)) + _READ_NS * sum(map(len, value)))
            return {key: self._normalized(each) for key, each in value.items()}
        if kind is str:
            self._meter.charge(_READ_NS * len(value))
        if kind is float and value.is_integer() and abs(value) < 2**63:
            return int(value)
        return value

    # Numbers

    def _bound(
        self,
        schema: Schema,
        value: Any,
        place: _Place,
        word: str,
        words: str,
        holds: Callable[[Any, Any], bool],
    ) -> bool:
        if not _is_number(value) or holds(value, schema[word]):
            return True
        return self._fail(place.at(word), f"{_shown(value)} is {words} {_shown(schema[word])}")

    def minimum(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._bound(schema, value, place, "minimum", "less than the minimum of", lambda a, b: a >= b)

    def maximum(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._bound(
            schema, value, place, "maximum", "greater than the maximum of", lambda a, b: a <= b
        )

    def exclusive_minimum(self, schema: Schema, value: Any, place: _Place) -> bool:
        words = "less than or equal to the minimum of"
        return self._bound(schema, value, place, "exclusiveMinimum", words, lambda a, b: a > b)

    def exclusive_maximum(self, schema: Schema, value: Any, place: _Place) -> bool:
        words = "greater than or equal to the maximum of"
        return self._bound(schema, value, place, "exclusiveMaximum", words, lambda a, b: a < b)

    def multiple_of(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._bound(schema, value, place, "multipleOf", "not a multiple of", _is_multiple)

    # Text

    def _size(self, schema: Schema, value: Any, place: _Place, word: str, kind: type, words: str) -> bool:
        if type(value) is not kind:
            return True
        wanted, has = schema[word], len(value)  # type: ignore[arg-type]
        if has >= wanted if word.startswith("min") else has <= wanted:
            return True
        return self._fail(place.at(word), f"{_shown(value)} {words} ({has:,}, limit: {wanted:,})")

    def min_length(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "minLength", str, "is too short")

    def max_length(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "maxLength", str, "is too long")

    def pattern(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not str or self._found(schema["pattern"], value):
            return True
        return self._fail(place.at("pattern"), f"{_shown(value)} does not match {schema['pattern']!r}")

    def _found(self, pattern: str, text: str) -> bool:
        return found_in(text, pattern, self._meter)

    # Lists

    def min_items(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "minItems", list, "is too short")

    def max_items(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "maxItems", list, "is too long")

    def unique_items(self, schema: Schema, value: Any, place: _Place) -> bool:
        if not schema["uniqueItems"] or type(value) is not list:
            return True
        seen: set[bytes] = set()
        for at, each in enumerate(value):
            self._meter.charge(_STEP_NS)
            form = self._canonical(each)
            if form in seen:
                return self._fail(place.at("uniqueItems"), f"element {at} appears twice")
            seen.add(form)
        return True

    def _all(self, checks: Iterator[bool]) -> bool:
        """Return whether all hold; all are looked at if what does not is reported."""
        valid = True
        for each in checks:
            if not each:
                valid = False
                if self._silent:
                    break
        return valid

    def prefix_items(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not list:
            return True
        pairs = enumerate(zip(schema["prefixItems"], value, strict=False))
        return self._all(
            self._apply(part, each, place.into(at, "prefixItems", at)) for at, (part, each) in pairs
        )

    def items(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not list:
            return True
        rule, first = schema["items"], len(schema.get("prefixItems", ()))
        if rule is False and len(value) > first:
            return self._fail(
                place.at("items"), f"at most {first} elements are expected, found {len(value):,}"
            )
        return self._all(
            self._apply(rule, value[at], place.into(at, "items")) for at in range(first, len(value))
        )

    def contains(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not list:
            return True
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        count = 0
        for at, each in enumerate(value):
            self._meter.charge(_STEP_NS)
            if self._matches(schema["contains"], each, place.into(at, "contains")):
                count += 1
                if count > most:
                    return self._fail(
                        place.at("maxContains"), f"more than {most:,} elements match `contains`"
                    )
        if count >= least:
            return True
        message = f"{count:,} elements match `contains`, {least:,} are needed"
        return self._fail(place.at("contains" if not count else "minContains"), message)

    def unevaluated_items(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not list:
            return True
        known = self._evaluated(schema, value, place)
        extra = [at for at in range(len(value)) if at not in known]
        rule = schema["unevaluatedItems"]
        return self._all(self._apply(rule, value[at], place.into(at, "unevaluatedItems")) for at in extra)

    def _evaluated(self, schema: Any, value: list[Any], place: _Place) -> set[int]:
        """Return the indexes of the elements that other keywords check."""
        if type(schema) is bool:
            return set()
        self._meter.charge(_STEP_NS * (1 + len(schema) + len(value)))
        if "items" in schema:
            return set(range(len(value)))
        found = set(range(min(len(value), len(schema.get("prefixItems", ())))))
        if "contains" in schema:
            found |= {
                at for at, each in enumerate(value) if self._matches(schema["contains"], each, place.into(at))
            }
        for word in _REFERENCES & schema.keys():
            target, base = self._target(schema[word], place.base)
            there = _Place(place.value, place.part, base)
            if self._matches(target, value, there):
                found |= self._evaluated(target, value, there)
        for word in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(word, ()):
                if self._matches(part, value, place):
                    found |= self._evaluated(part, value, place)
        if "if" in schema:
            holds = self._matches(schema["if"], value, place)
            if holds:
                found |= self._evaluated(schema["if"], value, place)
            found |= self._evaluated(schema.get("then" if holds else "else", True), value, place)
        return found

    # Objects

    def min_properties(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "minProperties", dict, "does not have enough properties")

    def max_properties(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._size(schema, value, place, "maxProperties", dict, "has too many properties")

    def required(self, schema: Schema, value: Any, place: _Place) -> bool:
        return type(value) is not dict or self._present(schema["required"], value, place.at("required"), "")

    def _present(self, names: list[str], value: dict[str, Any], place: _Place, cause: str) -> bool:
        self._meter.charge(_STEP_NS // 4 * len(names))
        return self._all(
            name in value or self._fail(place, f"{name!r} is a required property{cause}") for name in names
        )

    def dependent_required(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        self._meter.charge(_STEP_NS // 4 * len(schema["dependentRequired"]))
        at = place.at("dependentRequired")
        return self._all(
            self._present(names, value, at, f" with {name!r}")
            for name, names in schema["dependentRequired"].items()
            if name in value
        )

    def dependent_schemas(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        self._meter.charge(_STEP_NS // 4 * len(schema["dependentSchemas"]))
        return self._all(
            self._apply(part, value, place.at("dependentSchemas", name))
            for name, part in schema["dependentSchemas"].items()
            if name in value
        )

    def properties(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        known = schema["properties"]
        self._meter.charge(_STEP_NS // 4 * min(len(known), len(value)))
        names = (
            [name for name in known if name in value] if len(known) <= len(value) else known.keys() & value
        )
        return self._all(
            self._apply(known[name], value[name], place.into(name, "properties", name)) for name in names
        )

    def pattern_properties(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        return self._all(
            self._apply(part, each, place.into(name, "patternProperties", pattern))
            for pattern, part in schema["patternProperties"].items()
            for name, each in value.items()
            if self._found(pattern, name)
        )

    def additional_properties(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        rule, known = schema["additionalProperties"], schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        self._meter.charge(_STEP_NS // 4 * len(value))
        extra = (
            name
            for name in value
            if name not in known and not any(self._found(pattern, name) for pattern in patterns)
        )
        at = place.at("additionalProperties")
        if rule is False:
            return self._all(self._fail(at, f"{_shown(name)} is not expected here") for name in extra)
        return self._all(
            self._apply(rule, value[name], place.into(name, "additionalProperties")) for name in extra
        )

    def property_names(self, schema: Schema, value: Any, place: _Place) -> bool:
        if type(value) is not dict:
            return True
        at = place.at("propertyNames")
        return self._all(self._apply(schema["propertyNames"], name, at) for name in value)

    # Other schemas for the same value

    def reference(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self.follow(schema, value, place, "$ref")

    def dynamic_reference(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self.follow(schema, value, place, "$dynamicRef")

    def all_of(self, schema: Schema, value: Any, place: _Place) -> bool:
        return self._all(
            self._apply(part, value, place.at("allOf", at)) for at, part in enumerate(schema["allOf"])
        )

    def any_of(self, schema: Schema, value: Any, place: _Place) -> bool:
        if any(self._matches(part, value, place) for part in schema["anyOf"]):
            return True
        return self._fail(place.at("anyOf"), f"{_shown(value)} is not valid under any of the given schemas")

    def one_of(self, schema: Schema, value: Any, place: _Place) -> bool:
        count = 0
        for part in schema["oneOf"]:
            count += self._matches(part, value, place)
            if count > 1:
                message = f"{_shown(value)} is valid under more than one of the given schemas"
                return self._fail(place.at("oneOf"), message)
        if count:
            return True
        return self._fail(place.at("oneOf"), f"{_shown(value)} is not valid under any of the given schemas")

    def negation(self, schema: Schema, value: Any, place: _Place) -> bool:
        if not self._matches(schema["not"], value, place):
            return True
        return self._fail(
            place.at("not"), f"{_shown(value)} should not be valid under {_shown(schema['not'])}"
        )

    def condition(self, schema: Schema, value: Any, place: _Place) -> bool:
        word = "then" if self._matches(schema["if"], value, place) else "else"
        return word not in schema or self._apply(schema[word], value, place.at("if", word))


_REFERENCES = frozenset({"$ref", "$dynamicRef"})
_KEYWORDS: Mapping[str, Callable[[Check, Schema, Any, _Place], bool]] = {
    "$ref": Check.reference,
    "$dynamicRef": Check.dynamic_reference,
    "type": Check.kind,
    "enum": Check.enum,
    "const": Check.const,
    "minimum": Check.minimum,
    "maximum": Check.maximum,
    "exclusiveMinimum": Check.exclusive_minimum,
    "exclusiveMaximum": Check.exclusive_maximum,
    "multipleOf": Check.multiple_of,
    "minLength": Check.min_length,
    "maxLength": Check.max_length,
    "pattern": Check.pattern,
    "minItems": Check.min_items,
    "maxItems": Check.max_items,
    "uniqueItems": Check.unique_items,
    "prefixItems": Check.prefix_items,
    "items": Check.items,
    "contains": Check.contains,
    "unevaluatedItems": Check.unevaluated_items,
    "minProperties": Check.min_properties,
    "maxProperties": Check.max_properties,
    "required": Check.required,
    "dependentRequired": Check.dependent_required,
    "dependentSchemas": Check.dependent_schemas,
    "properties": Check.properties,
    "patternProperties": Check.pattern_properties,
    "additionalProperties": Check.additional_properties,
    "propertyNames": Check.property_names,
    "allOf": Check.all_of,
    "anyOf": Check.any_of,
    "oneOf": Check.one_of,
    "not": Check.negation,
    "if": Check.condition,
}


def _is_multiple(value: Any, unit: Any) -> bool:
    if type(value) is int and type(unit) is int:
        return value % unit == 0
    return (_exact(value) / _exact(unit)).denominator == 1


def _exact(number: Any) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth."""
    return Fraction(repr(number) if type(number) is float else number)


def _shown(value: Any, depth: int = 2) -> str:
    """Return a value as text of bounded size."""
    if type(value) is list or type(value) is dict:
        pair = "[]" if type(value) is list else "{}"
        if not value or not depth:
            return pair if not value else f"{pair[0]}…{pair[1]}"
        if isinstance(value, list):
            parts = [_shown(each, depth - 1) for each in value[:_MAX_SHOWN]]
        else:
            first = islice(value.items(), _MAX_SHOWN)
            parts = [f"{_shown(key)}: {_shown(each, depth - 1)}" for key, each in first]
        if len(value) > _MAX_SHOWN:
            parts.append("…")
        return f"{pair[0]}{', '.join(parts)}{pair[1]}"
    if type(value) is str:
        return repr(value if len(value) <= 60 else value[:59] + "…")
    if type(value) is int and abs(value) >= 1 << 256:
        return "a large number"
    return repr(value)


# References


def _names_resource(schema: Schema) -> bool:
    id = schema.get("$id")
    return isinstance(id, str) and not id.startswith("#")


def _find_target(reference: str, base: Schema, root: Schema, anchors: Anchors) -> tuple[Any, Schema]:
    """Return the schema that a reference within a resource means, and the resource that it is in."""
    name = unquote(reference.removeprefix("#"))
    if not name:
        return base, base
    if not name.startswith("/"):
        # A dynamic reference means the outermost of its anchors.
        for around in (root, base):
            if (id(around), name) in anchors:
                return anchors[id(around), name], around
        raise UnusableSchemaError(f"the reference `{reference[:200]}` cannot be resolved")
    found: Any = base
    for each in name[1:].split("/"):
        key = each.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and len(key) < 9 and int(key) < len(found):
            found = found[int(key)]
        else:
            raise UnusableSchemaError(f"the reference `{reference[:200]}` cannot be resolved")
        if isinstance(found, dict) and _names_resource(found):
            base = found
    if not isinstance(found, dict | bool):
        raise UnusableSchemaError(f"the reference `{reference[:200]}` leads to what is not a schema")
    return found, base


_ONE = (
    "items",
    "contains",
    "unevaluatedItems",
    "additionalProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
_NAMED = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")


def _inner(schema: Schema) -> Iterator[tuple[Path, Any]]:
    """Yield the schemas directly within a schema, with their places."""
    for word in _ONE:
        if word in schema:
            yield (word,), schema[word]
    for word in _LISTS:
        parts = schema.get(word)
        for at, each in enumerate(parts if isinstance(parts, list) else ()):
            yield (word, at), each
    for word in _NAMED:
        named = schema.get(word)
        for name, each in (named if isinstance(named, dict) else {}).items():
            yield (word, name), each


def _find_anchors(schema: Schema, meter: Meter) -> Anchors:
    """Return the schemas that have anchors, by the identity of their resource and the name of the anchor."""
    found: Anchors = {}
    waiting: list[tuple[Any, Schema]] = [(schema, schema)]
    while waiting:
        each, base = waiting.pop()
        if isinstance(each, dict):
            meter.charge(_STEP_NS * (1 + len(each)))
            base = each if _names_resource(each) else base
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(each.get(word), str):
                    found.setdefault((id(base), each[word]), each)
            waiting += [(inner, base) for _, inner in _inner(each)]
    return found


# Schemas that cannot be used


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_TEXT = (lambda value: isinstance(value, str), "text")
_NUMBER = (_is_number, "a number")
_SIZE = (_is_size, "a whole number from 0")
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "$ref": _TEXT,
    "$dynamicRef": _TEXT,
    "$id": _TEXT,
    "$anchor": _TEXT,
    "$dynamicAnchor": _TEXT,
    "$schema": _TEXT,
    "$comment": _TEXT,
    "title": _TEXT,
    "description": _TEXT,
    "format": _TEXT,
    "pattern": _TEXT,
    "type": (
        lambda value: (
            value in _TYPES
            if isinstance(value, str)
            else _is_names(value) and bool(value) and set(value) <= _TYPES.keys()
        ),
        "one of " + ", ".join(_TYPES) + ", or a list of them",
    ),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "minLength": _SIZE,
    "maxLength": _SIZE,
    "minItems": _SIZE,
    "maxItems": _SIZE,
    "minContains": _SIZE,
    "maxContains": _SIZE,
    "minProperties": _SIZE,
    "maxProperties": _SIZE,
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "required": (_is_names, "a list of names"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(_is_names(each) for each in value.values()),
        "an object of lists of names",
    ),
    **dict.fromkeys(
        _ONE, (lambda value: isinstance(value, dict | bool), "a schema: an object, true or false")
    ),
    **dict.fromkeys(
        _LISTS,
        (
            lambda value: (
                isinstance(value, list)
                and bool(value)
                and all(isinstance(each, dict | bool) for each in value)
            ),
            "a list of schemas",
        ),
    ),
    **dict.fromkeys(
        _NAMED,
        (
            lambda value: (
                isinstance(value, dict) and all(isinstance(each, dict | bool) for each in value.values())
            ),
            "an object of schemas",
        ),
    ),
}


def unusable_parts(schema: Schema, meter: Meter) -> Iterator[tuple[Path, str]]:
    """Yield what makes a schema unusable, with its place. The work is charged to the meter."""
    edges: dict[int, list[int]] = {}
    kept: list[tuple[Path, Schema, Schema]] = []
    waiting: deque[tuple[Path, Schema, Schema]] = deque([((), schema, schema)])
    anchors = _find_anchors(schema, meter)
    sound = True
    while waiting:
        path, part, base = waiting.pop()
        if id(part) in edges:
            continue
        kept.append((path, part, base))
        same = edges[id(part)] = []
        meter.charge(_STEP_NS * (3 + len(part)))
        wrong = list(_wrong_keywords(path, part, meter))
        yield from wrong
        if wrong:
            sound = False
            continue
        base = part if _names_resource(part) else base
        for where, inner in reversed(list(_inner(part))):
            if isinstance(inner, dict):
                waiting.append((path + where, inner, base))
                if where[0] in _SAME_VALUE:
                    same.append(id(inner))
        for word in _REFERENCES & part.keys():
            reference = part[word]
            meter.charge(_STEP_NS * (1 + reference.count("/")))
            try:
                target, around = _find_target(reference, base, schema, anchors)
            except UnusableSchemaError as error:
                sound = False
                yield (), str(error)
                continue
            if isinstance(target, dict):
                # A target that is not found otherwise is within what is no keyword.
                waiting.appendleft((tuple(reference.split("/")[1:]), target, around))
                same.append(id(target))
    if sound:
        yield from _expansion(edges)


_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


def _wrong_keywords(path: Path, part: Schema, meter: Meter) -> Iterator[tuple[Path, str]]:
    for word, value in part.items():
        rule = _RULES.get(word)
        if rule is not None and not rule[0](value):
            yield (*path, word), f"{_shown(value)} is not {rule[1]}"
        elif word in _REFERENCES and not value.startswith("#"):
            message = f"`{value[:200]}` is outside this document; remote references are not loaded"
            yield (*path, word), message
        elif word == "unevaluatedProperties":
            yield (*path, word), "`unevaluatedProperties` is not supported"
        elif word == "pattern" or (word == "patternProperties" and rule is not None):
            for pattern in [value] if word == "pattern" else value:
                try:
                    compiled(pattern, meter)
                except TimeBudgetError:
                    raise
                except ExpressionError as error:
                    yield path, f"the pattern {_shown(pattern)} cannot be used: {error.message}"


def _expansion(edges: Mapping[int, list[int]]) -> Iterator[tuple[Path, str]]:
    """Count how many schemas are applied to one value, along references."""
    count: dict[int, int] = {}
    depth: dict[int, int] = {}
    for start in edges:
        active = {start}
        stack = [] if start in count else [(start, iter(edges[start]))]
        while stack:
            at, rest = stack[-1]
            below = next((each for each in rest if each not in count), None)
            if below is not None:
                if below in active:
                    yield (), "the schema refers to itself endlessly"
                    return
                active.add(below)
                stack.append((below, iter(edges[below])))
                continue
            stack.pop()
            active.discard(at)
            count[at] = 1 + sum(count[each] for each in edges[at])
            depth[at] = 1 + max((depth[each] for each in edges[at]), default=0)
            if count[at] > MAX_APPLIED:
                yield (
                    (),
                    f"its references apply too many schemas to one value (limit: {MAX_APPLIED:,} schemas)",
                )
                return
            if depth[at] > MAX_CHAIN:
                yield (
                    (),
                    f"too many schemas within each other apply to one value (limit: {MAX_CHAIN} schemas)",
                )
                return
