"""Conditions of a canvas document."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from rune.documents.importers import javascript as js
from rune.documents.importers.javascript import Step, UntranslatableError
from rune.documents.importers.translate import Value, quoted

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?\Z")
_DENIAL = re.compile(r"not\s+|!(?!=)\s*")
_DENIED = re.compile(r"(?:not\s+|!(?!=)\s*)+(?=.)", re.DOTALL)
_MAX_DENIALS = 20


class NoCounterpartError(Exception):
    """A node cannot be imported."""


class References(Protocol):
    """What the references of a node refer to."""

    def working_value(self, node_id: str) -> str:
        """Return the expression for `$json` in a node."""

    def reference(self, node_id: str, root: str, path: str) -> str | None:
        """Return the expression for `$root.path`; None if the root is no name of the document."""


def is_loose(left: Any, right: Any) -> bool:
    """Return whether two operands may be equal in the source engine but not here: a text and a number."""
    if any(isinstance(each, str) and NUMBER.match(each) for each in (left, right)):
        return True
    return all(isinstance(each, str) and each.startswith("$") for each in (left, right))


def expression_of(operand: Any) -> str:
    """Write an operand of a rule as an expression."""
    if isinstance(operand, str):
        if operand.startswith("$") and not operand.startswith("$$"):
            return operand
        operand = operand.replace("$$", "$")
    return quoted(operand)


class CanvasScope:
    """Names of JavaScript expressions in an `edit`."""

    def __init__(self, canvas: References, node_id: str) -> None:
        self._canvas = canvas
        self._id = node_id

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        if not isinstance(base, js.Name) or not base.name.startswith("$"):
            return None
        path = ".$json" if steps and steps[0].name == "$json" else ""
        if base.name == "$json":
            return Value("$item" if self._is_list() else self._canvas.working_value(self._id)), 0
        found = self._canvas.reference(self._id, base.name[1:], path)
        if found is None:
            raise UntranslatableError(f"`{base.name}` refers to no node")
        return Value(found), 1 if path else 0

    def _is_list(self) -> bool:
        return self._canvas.working_value(self._id).endswith(".items")


class Condition:
    """Translates a condition: comparisons joined by `and`, `or` and `not`, without parentheses."""

    _LOGIC = re.compile(r"""("(?:[^"])*"|'(?:[^'])*')|(?<=\s)(and|or)(?=\s)""")

    def __init__(self, operand: Callable[[str], Any]) -> None:
        self._operand = operand
        self._loose = False

    def translate(self, text: str) -> tuple[str, bool]:
        parts: list[str] = []
        at = 0
        for match in self._LOGIC.finditer(text):
            if match[2]:
                parts += [self._comparison(text[at : match.start()]), match[2]]
                at = match.end()
        parts.append(self._comparison(text[at:]))
        return " ".join(parts), self._loose

    def _comparison(self, text: str) -> str:
        text = text.strip()
        denied = _DENIED.match(text)
        if denied:
            count = len(_DENIAL.findall(denied[0]))
            if count > _MAX_DENIALS:
                raise NoCounterpartError(f"the condition has more than {_MAX_DENIALS} negations in a row")
            return "not " * count + self._comparison(text[denied.end() :])
        for operator in (">=", "<=", "==", "!=", ">", "<", " contains "):
            if operator in text:
                left, right = text.split(operator, 1)
                word = operator.strip()
                sides = [self._side(left), self._side(right)]
                self._loose = self._loose or (word in ("==", "!=") and is_loose(*sides))
                return f"{expression_of(sides[0])} {word} {expression_of(sides[1])}"
        if not text:
            raise NoCounterpartError("the condition is incomplete")
        return expression_of(self._side(text))

    def _side(self, text: str) -> Any:
        return self._operand(text)
