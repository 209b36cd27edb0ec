"""Rules of choice states as expressions."""

from __future__ import annotations

import re
from typing import Any

from rune.importing.asl.paths import MAX_DEPTH, Names, jsonata, path_text
from rune.importing.draft import mapping, sequence
from rune.importing.javascript import UntranslatableError
from rune.importing.translate import quoted

_ORDER = {
    "Equals": "==",
    "LessThan": "<",
    "GreaterThan": ">",
    "LessThanEquals": "<=",
    "GreaterThanEquals": ">=",
}
_TYPES = {"String": "string", "Numeric": "number", "Boolean": "boolean", "Timestamp": "string"}
_COMPARISON = re.compile(
    r"(String|Numeric|Boolean|Timestamp)(Equals|LessThanEquals|GreaterThanEquals|LessThan|GreaterThan)(Path)?"
)
_TESTS = {
    "IsNull": 'type({}) == "null"',
    "IsString": 'type({}) == "string"',
    "IsNumeric": 'type({}) == "number"',
    "IsBoolean": 'type({}) == "boolean"',
    "IsPresent": "exists({})",
}
_TIMES = "times are compared as texts; both must be written in the same way"


def condition_of(rule: dict[str, Any], names: Names) -> tuple[str, tuple[str, ...]]:
    """Return the expression of a rule, and what differs at run time."""
    if names.jsonata:
        text = rule.get("Condition")
        inner = re.fullmatch(r"\s*\{%(.*)%\}\s*", text, re.DOTALL) if isinstance(text, str) else None
        if inner is None:
            if isinstance(text, bool):
                return quoted(text), ()
            raise UntranslatableError("the condition is not an expression")
        return f"({jsonata(inner[1], names)}) == true", ()
    notes: list[str] = []
    return _rule(rule, names, notes, 0), tuple(dict.fromkeys(notes))


def _rule(rule: dict[str, Any], names: Names, notes: list[str], depth: int) -> str:
    if depth > MAX_DEPTH:
        raise UntranslatableError(f"the rule is nested deeper than {MAX_DEPTH} levels")
    for key, word in (("And", " and "), ("Or", " or ")):
        if key in rule:
            parts = [f"({_rule(mapping(each), names, notes, depth + 1)})" for each in sequence(rule[key])]
            if not parts:
                raise UntranslatableError(f"`{key}` has no rules")
            return word.join(parts)
    if "Not" in rule:
        return f"not ({_rule(mapping(rule['Not']), names, notes, depth + 1)})"
    variable = path_text(str(rule.get("Variable")), names)
    for key, value in rule.items():
        if key in _TESTS:
            text = _TESTS[key].format(variable)
            return text if value is True else f"not ({text})"
        if key == "StringMatches" and isinstance(value, str):
            return f'type({variable}) == "string" and matches({variable}, {quoted(_pattern(value))})'
        found = _COMPARISON.fullmatch(key)
        if found is not None:
            if found[1] == "Timestamp":
                notes.append(_TIMES)
            other = path_text(str(value), names) if found[3] else quoted(value)
            guard = f'type({variable}) == "{_TYPES[found[1]]}" and '
            return f"{guard}{variable} {_ORDER[found[2]]} {other}"
    raise UntranslatableError("the rule compares nothing that has a counterpart")


def _pattern(text: str) -> str:
    """Write a text with wildcards as a pattern; `\\*` is an asterisk."""
    parts = re.split(r"(\\[*\\]|\*)", text)
    written = [".*" if each == "*" else re.escape(each[1:] if each[:1] == "\\" else each) for each in parts]
    return "^" + "".join(written) + "$"
