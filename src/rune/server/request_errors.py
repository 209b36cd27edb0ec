"""Describes invalid parameters and bodies of requests: which one, what was sent, and what is allowed.

Values of query parameters are shown. Those of headers and bodies are not, because they may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_SHOWN = 60  # characters of a value
MAX_REPORTED = 5  # errors of one request

PATTERNS = {
    r"^[A-Za-z0-9_-]{1,128}$": "at most 128 letters, digits, `_` and `-`",
    "=": "of the form `name=value`",
}
"""Patterns of parameters in words."""

_TIME = "a time with a time zone, such as `2026-01-31T12:00:00Z`"
_EXPECTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "int_parsing": lambda _: "a whole number",
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_parsing": lambda _: "a number",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_parsing": lambda _: "`true` or `false`",
    "bool_type": lambda _: "`true` or `false`",
    "string_type": lambda _: "text",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "an object",
    "model_type": lambda _: "an object",
    "model_attributes_type": lambda _: "an object",
    "datetime_parsing": lambda _: _TIME,
    "datetime_from_date_parsing": lambda _: _TIME,
    "datetime_type": lambda _: _TIME,
    "timezone_aware": lambda _: _TIME,
    "greater_than_equal": lambda bound: f"at least {bound['ge']}",
    "greater_than": lambda bound: f"more than {bound['gt']}",
    "less_than_equal": lambda bound: f"at most {bound['le']}",
    "less_than": lambda bound: f"less than {bound['lt']}",
    "literal_error": lambda bound: f"one of {_listed(str(bound['expected']))}",
    "string_pattern_mismatch": lambda bound: PATTERNS.get(
        str(bound["pattern"]), f"text that matches `{bound['pattern']}`"
    ),
    "string_too_short": lambda bound: f"text of at least {_characters(bound['min_length'])}",
    "string_too_long": lambda bound: f"text of at most {_characters(bound['max_length'])}",
    "too_short": lambda bound: f"at least {bound['min_length']} in number",
    "too_long": lambda bound: f"at most {bound['max_length']} in number",
}
"""What is allowed, by the type of error."""


def describe_errors(place: str, errors: Sequence[Mapping[str, Any]], allowed: Sequence[str] = ()) -> str:
    """Describe the errors of one place of a request. `allowed`: the names of its parameters, if known."""
    return "; ".join(_describe(place, each, allowed) for each in errors[:MAX_REPORTED])


def _describe(place: str, error: Mapping[str, Any], allowed: Sequence[str]) -> str:
    kind, names = str(error["type"]), list(error["loc"][1:])
    if place == "query":
        names = names[:1]  # of a repeated parameter, its number means nothing to the client
    name = "".join(f"[{each}]" if isinstance(each, int) else f".{str(each)[:80]}" for each in names)
    subject = _subject(place, name.lstrip("."))
    if kind == "extra_forbidden":
        known = f"; allowed are {', '.join(f'`{each}`' for each in allowed)}" if allowed else ""
        return f"{subject} is unknown{known}"
    if kind == "missing":
        return f"{subject} is required"
    expected = _EXPECTED.get(kind)
    if expected is None:
        message = str(error["msg"])
        return f"{subject} is invalid: {message[:1].lower()}{message[1:]}"
    sent = f", not `{_shown(error.get('input'))}`" if place == "query" else ""
    return f"{subject} must be {expected(error.get('ctx') or {})}{sent}"


def _subject(place: str, name: str) -> str:
    if not name:
        return f"the {place}"
    return f"`{name}` of the body" if place == "body" else f"the {_PLACES[place]} `{name}`"


_PLACES = {"query": "query parameter", "header": "header", "path": "path parameter"}


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count} characters"


def _shown(value: object) -> str:
    text = "".join(each if each.isprintable() else "?" for each in str(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _listed(expected: str) -> str:
    """Turn `'a', 'b' or 'c'` into `a`, `b`, `c` in backquotes."""
    return ", ".join(f"`{each}`" for each in re.findall(r"'([^']*)'", expected))
