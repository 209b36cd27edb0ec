"""Conditions of n8n's If, Filter and Switch nodes as Rune expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rune.importing.draft import mapping, sequence
from rune.importing.javascript import UntranslatableError
from rune.importing.translate import Translation, quoted

Operand = Callable[[Any], Translation]
"""Translates an operand to an expression."""

_FORMER_OPERATIONS = {
    "equal": "equals", "notEqual": "notEquals", "larger": "gt", "largerEqual": "gte", "smaller": "lt",
    "smallerEqual": "lte", "isEmpty": "empty", "isNotEmpty": "notEmpty",
}  # fmt: skip
_FORMER_DEFAULTS = {"string": "equal", "number": "smaller", "boolean": "equal"}
_DENIED = {
    "notEquals": "equals", "notContains": "contains", "notStartsWith": "startsWith", "notEndsWith": "endsWith",
    "notRegex": "regex", "notExists": "exists", "notEmpty": "empty",
}  # fmt: skip
_ORDER = {
    "gt": ">", "lt": "<", "gte": ">=", "lte": "<=", "after": ">", "before": "<", "afterOrEquals": ">=",
    "beforeOrEquals": "<=",
}  # fmt: skip
_LENGTHS = {
    "lengthEquals": "==", "lengthNotEquals": "!=", "lengthGt": ">", "lengthLt": "<", "lengthGte": ">=",
    "lengthLte": "<=",
}  # fmt: skip
_PLAIN = re.compile(r'[$\w.]+|-?[\d.]+|"[^"\\]*"')
_DATES = "dates are compared as texts; both must be written in the same way"


def conditions_of(given: Mapping[str, Any], operand: Operand, *, former: bool) -> Translation:
    """Translate a set of conditions; `former` selects the layout of version 1 of the nodes."""
    notes: list[str] = []
    if former:
        word = " or " if given.get("combineOperation") == "any" else " and "
        parts = list(_former(given.get("conditions"), operand, notes))
    else:
        conditions = mapping(given.get("conditions"))
        word = " or " if conditions.get("combinator") == "or" else " and "
        options = mapping(conditions.get("options"))
        fold = options.get("caseSensitive") is False
        parts = [
            _condition(each, operand, notes, fold=fold) for each in sequence(conditions.get("conditions"))
        ]
    if not parts:
        return Translation("true")
    text = parts[0] if len(parts) == 1 else word.join(f"({each})" for each in parts)
    return Translation(text, tuple(dict.fromkeys(notes)), "boolean")


def _former(given: Any, operand: Operand, notes: list[str]) -> Any:
    for kind, rules in mapping(given).items():
        for rule in map(mapping, sequence(rules)):
            operation = str(rule.get("operation") or _FORMER_DEFAULTS.get(kind, "equal"))
            operation = _FORMER_OPERATIONS.get(operation, operation)
            yield _compare(kind, operation, operand(rule.get("value1")), rule.get("value2"), operand, notes)


def former_rule(kind: str, rule: Mapping[str, Any], left: Any, operand: Operand) -> Translation:
    """Translate one rule of a former Switch node."""
    notes: list[str] = []
    operation = str(rule.get("operation") or _FORMER_DEFAULTS.get(kind, "equal"))
    operation = _FORMER_OPERATIONS.get(operation, operation)
    text = _compare(kind, operation, operand(left), rule.get("value2"), operand, notes)
    return Translation(text, tuple(notes), "boolean")


def _condition(given: Any, operand: Operand, notes: list[str], *, fold: bool) -> str:
    given = mapping(given)
    operator = mapping(given.get("operator"))
    kind, operation = str(operator.get("type") or "string"), str(operator.get("operation") or "equals")
    left = operand(given.get("leftValue"))
    return _compare(kind, operation, left, given.get("rightValue"), operand, notes, fold=fold)


def _compare(
    kind: str,
    operation: str,
    left: Translation,
    right: Any,
    operand: Operand,
    notes: list[str],
    *,
    fold: bool = False,
) -> str:
    notes.extend(left.notes)
    if operation in _DENIED:
        return f"not ({_compare(kind, _DENIED[operation], left, right, operand, notes, fold=fold)})"
    subject = left.text
    if operation == "exists":
        return f"{_side(subject)} != null"
    if operation == "empty":
        return f"not {_side(subject)}"
    if operation in ("true", "false"):
        return f"{_side(subject)} == {operation}"
    value = operand(right)
    notes.extend(value.notes)
    other = _typed(kind, value)
    if operation in _LENGTHS:
        return f"len({subject}) {_LENGTHS[operation]} {other}"
    if kind == "dateTime":
        notes.append(_DATES)
    if fold and kind == "string":
        subject, other = f"lower(str({subject}))", f"lower(str({other}))"
    if operation == "equals":
        return f"{_side(subject)} == {_side(other)}"
    if operation in _ORDER:
        return f"{_side(subject)} {_ORDER[operation]} {_side(other)}"
    if operation == "contains":
        return f"{_side(subject)} contains {_side(other)}"
    words = {"startsWith": "starts_with", "endsWith": "ends_with", "regex": "matches"}
    if operation not in words:
        raise UntranslatableError(f"the condition `{operation}` has no counterpart")
    return f"{words[operation]}({subject}, {other})"


def _typed(kind: str, value: Translation) -> str:
    """Write a literal right side with the type of the condition: n8n stores numbers as texts at times."""
    if kind == "number" and value.text.startswith('"'):
        inner = value.text.strip('"')
        try:
            return quoted(float(inner) if "." in inner else int(inner))
        except ValueError:
            return value.text
    return value.text


def _side(text: str) -> str:
    """Return an operand of a comparison, in parentheses unless it is a path or a literal."""
    return text if _PLAIN.fullmatch(text) else f"({text})"
