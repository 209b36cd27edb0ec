"""Translate parsed JavaScript to Rune expressions.

What the names of an expression refer to is decided by a `Scope` of the source format. A translation that may give
another result than JavaScript for some values carries a note that says so; what has no counterpart raises
UntranslatableError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from rune.documents.importers import javascript as js
from rune.documents.importers.javascript import Step, UntranslatableError

# Precedence of Rune operators, loosest first.
_CHOICE, _OR, _AND, _NOT, _COMPARE, _COALESCE, _ADD, _MULTIPLY, _UNARY, _POWER, _ATOM = range(1, 12)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LUXON = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "LL": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S",
    "a": "%p", "EEE": "%a", "EEEE": "%A", "MMM": "%b", "LLL": "%b", "MMMM": "%B", "LLLL": "%B", "ooo": "%j",
}  # fmt: skip
_LUXON_TOKEN = re.compile(r"'([^']*)'|(([A-Za-z])\3*)|([^A-Za-z'])")
_UNITS = frozenset({"seconds", "minutes", "hours", "days", "weeks", "months", "years"})

LOOSE_EQUALITY = '`==` converts types in JavaScript; here 1 and "1" are different'
WHOLE_NUMBER = "a whole number that results from decimals is written as 5.0 in texts"
MIXED_ADDITION = "`+` joins a text and a number in JavaScript; here both must be numbers or both texts"


class Value(msgspec.Struct, frozen=True):
    """A translated expression: its text, precedence, type as far as it is known, and whether it may be missing."""

    text: str
    rank: int = _ATOM
    kind: str = ""  # "text", "number", "boolean", "list", "object", "date" or unknown
    optional: bool = False


class Scope(Protocol):
    """What names refer to."""

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        """Return the value that a path begins with and how many steps it takes; None if it is not a reference."""


class Translation(msgspec.Struct, frozen=True):
    """A Rune expression and what differs from JavaScript at run time."""

    text: str
    notes: tuple[str, ...] = ()
    kind: str = ""


Functions = Mapping[str, Callable[["_Translator", tuple[Any, ...]], Value]]
"""Functions of the source language by name, and how their calls are translated."""


def translate(source: str, scope: Scope, *, functions: Functions | None = None) -> Translation:
    """Translate one JavaScript expression; `functions` replace the global functions of JavaScript."""
    translator = _Translator(scope, _GLOBALS if functions is None else functions)
    value = translator.present(translator.value(js.parse(source)))
    return Translation(value.text, tuple(dict.fromkeys(translator.notes)), value.kind)


def quoted(value: Any) -> str:
    """Write a JSON value as an expression."""
    return json.dumps(value, ensure_ascii=False)


def member(base: str, key: str | int) -> str:
    """Return the text of a look-up."""
    if isinstance(key, str) and _WORD.match(key) and not key.startswith("__"):
        return f"{base}.{key}"
    return f"{base}[{quoted(key)}]"


def path_of(base: str, path: list[str | int]) -> str:
    for key in path:
        base = member(base, key)
    return base


class _Translator:
    def __init__(self, scope: Scope, functions: Functions) -> None:
        self._scope = scope
        self._functions = functions
        self._locals: list[str] = []
        self.notes: list[str] = []

    # Values

    def value(self, tree: Any) -> Value:
        """Translate a tree; the value may be missing at run time where `optional` is set."""
        if isinstance(tree, js.Constant):
            return self._constant(tree.value)
        if isinstance(tree, js.TextTemplate):
            return self._template(tree)
        if isinstance(tree, js.Unary):
            return self._unary(tree)
        if isinstance(tree, js.Binary):
            return self._binary(tree)
        if isinstance(tree, js.Choice):
            return self._choice(tree)
        if isinstance(tree, js.Array):
            return Value(f"[{', '.join(self.item(each) for each in tree.elements)}]", kind="list")
        if isinstance(tree, js.Object):
            return self._object(tree)
        if isinstance(tree, js.New):
            if tree.name == "Date" and not tree.arguments:
                return Value("now()", kind="date")
            raise UntranslatableError(f"`new {tree.name}` is not supported")
        if isinstance(tree, js.Arrow):
            raise UntranslatableError(
                "a function is only supported as the argument of map, filter, find, some and every"
            )
        base, steps = (tree.base, tree.steps) if isinstance(tree, js.Path) else (tree, ())
        return self._path(base, steps)

    def _choice(self, tree: js.Choice) -> Value:
        yes, condition, no = (self.present(self.value(each)) for each in (tree.yes, tree.condition, tree.no))
        parts = [_bracketed(each, _CHOICE + 1) for each in (yes, condition, no)]
        kind = yes.kind if yes.kind == no.kind else ""
        return Value(f"{parts[0]} if {parts[1]} else {parts[2]}", _CHOICE, kind)

    def present(self, value: Value) -> Value:
        """Return the value with null in place of a missing one."""
        return Value(f"{value.text} ?? null", _COALESCE, value.kind) if value.optional else value

    def item(self, tree: Any) -> str:
        """Return the text of an argument or element."""
        return self.present(self.value(tree)).text

    def _at(self, tree: Any, rank: int) -> str:
        """Return the text of an operand, in parentheses if it binds looser than its operator."""
        return _bracketed(self.present(self.value(tree)), rank)

    def _constant(self, value: Any) -> Value:
        kinds: dict[type, str] = {str: "text", int: "number", float: "number", bool: "boolean"}
        return Value(quoted(value), kind=kinds.get(type(value), ""))

    def _template(self, tree: js.TextTemplate) -> Value:
        parts = [quoted(each) if isinstance(each, str) else f"str({self.item(each)})" for each in tree.parts]
        parts = [each for each in parts if each != '""'] or ['""']
        return Value(" + ".join(parts), _ATOM if len(parts) == 1 else _ADD, "text")

    def _object(self, tree: js.Object) -> Value:
        groups: list[str] = []
        pairs: list[str] = []
        for key, each in tree.members:
            if key is None:
                groups += [f"{{{', '.join(pairs)}}}"] if pairs else []
                pairs = []
                groups.append(self.item(each))
            else:
                pairs.append(f"{quoted(key)}: {self.item(each)}")
        if not groups:
            return Value(f"{{{', '.join(pairs)}}}", kind="object")
        groups += [f"{{{', '.join(pairs)}}}"] if pairs else []
        return Value(f"merge({', '.join(groups)})", kind="object")

    # Operators

    def _unary(self, tree: js.Unary) -> Value:
        if tree.operator == "!":
            return Value(f"not {self._at(tree.operand, _NOT)}", _NOT, "boolean")
        if tree.operator == "typeof":
            self.notes.append(
                '`typeof` gives "object" for null and lists in JavaScript; here "null" and "array"'
            )
            return Value(f"type({self.item(tree.operand)})", kind="text")
        operand = self.value(tree.operand)
        if operand.kind != "number" and tree.operator == "+":
            return Value(f"float({self.present(operand).text})", kind="number")
        return Value(f"{tree.operator}{_bracketed(self.present(operand), _UNARY)}", _UNARY, "number")

    def _binary(self, tree: js.Binary) -> Value:
        operator = tree.operator
        if operator == "??":
            first, second = self.value(tree.left), self._at(tree.right, _COALESCE + 1)
            return Value(f"{_bracketed(first, _COALESCE + 1)} ?? {second}", _COALESCE)
        if operator in {"&&", "||"}:
            rank, word = (_AND, "and") if operator == "&&" else (_OR, "or")
            return Value(f"{self._at(tree.left, rank)} {word} {self._at(tree.right, rank + 1)}", rank)
        if operator == "+":
            return self._add(tree)
        if operator in {"-", "*", "/", "%"}:
            if operator == "%":
                self.notes.append(
                    "`%` of a negative number is negative in JavaScript; here it has the sign of the divisor"
                )
            if operator == "/" or _is_decimal(tree.left) or _is_decimal(tree.right):
                self.notes.append(WHOLE_NUMBER)
            rank = _ADD if operator == "-" else _MULTIPLY
            return Value(
                f"{self._at(tree.left, rank)} {operator} {self._at(tree.right, rank + 1)}", rank, "number"
            )
        if operator == "**":
            return Value(
                f"{self._at(tree.left, _POWER + 1)} ** {self._at(tree.right, _POWER)}", _POWER, "number"
            )
        left, right = self.present(self.value(tree.left)), self.present(self.value(tree.right))
        if operator in {"==", "!="} and not _same_kind(left, right):
            self.notes.append(LOOSE_EQUALITY)
        spelled = {"===": "==", "!==": "!="}.get(operator, operator)
        text = f"{_bracketed(left, _COMPARE + 1)} {spelled} {_bracketed(right, _COMPARE + 1)}"
        return Value(text, _COMPARE, "boolean")

    def _add(self, tree: js.Binary) -> Value:
        left, right = self.value(tree.left), self.value(tree.right)
        if "text" in {left.kind, right.kind}:
            sides = [
                each if each.kind == "text" else Value(f"str({self.present(each).text})")
                for each in (left, right)
            ]
            return Value(f"{_bracketed(sides[0], _ADD)} + {_bracketed(sides[1], _ADD + 1)}", _ADD, "text")
        if left.kind != "number" or right.kind != "number":
            self.notes.append(MIXED_ADDITION)
        kind = "number" if "number" in {left.kind, right.kind} else ""
        sides = [self.present(left), self.present(right)]
        return Value(f"{_bracketed(sides[0], _ADD)} + {_bracketed(sides[1], _ADD + 1)}", _ADD, kind)

    # Paths

    def _path(self, base: Any, steps: tuple[Step, ...]) -> Value:
        found = (
            None
            if isinstance(base, js.Name) and base.name in self._locals
            else self._scope.resolve(base, steps)
        )
        if found is not None:
            value, taken = found
        elif isinstance(base, js.Name):
            value, taken = self._name(base.name, steps)
        else:
            value, taken = self.value(base), 0
        at = taken
        while at < len(steps):
            step = steps[at]
            if step.kind == "name" and at + 1 < len(steps) and steps[at + 1].kind == "call":
                value = self._method(value, step.name, steps[at + 1].arguments)
                at += 2
                continue
            value = self._step(value, step)
            at += 1
        return value

    def _name(self, name: str, steps: tuple[Step, ...]) -> tuple[Value, int]:
        if name in self._locals:
            return Value(name), 0
        if steps and steps[0].kind == "call" and name in self._functions:
            return self._functions[name](self, steps[0].arguments), 1
        if len(steps) > 1 and steps[1].kind == "call" and f"{name}.{steps[0].name}" in self._functions:
            return self._functions[f"{name}.{steps[0].name}"](self, steps[1].arguments), 2
        shown = f"{name}.{steps[0].name}" if steps and steps[0].kind == "name" else name
        raise UntranslatableError(f"`{shown}` has no counterpart")

    def _step(self, value: Value, step: Step) -> Value:
        base = _bracketed(value, _ATOM)
        if step.kind == "name" and step.name == "length" and value.kind not in {"object", "date"}:
            return Value(f"len({self.present(value).text})", kind="number")
        if step.kind == "name":
            if value.kind == "date":
                raise UntranslatableError(f"`{step.name}` of a date has no counterpart")
            return Value(member(base, step.name), optional=True)
        if step.kind == "key":
            if isinstance(step.key, js.Constant) and isinstance(step.key.value, str | int):
                return Value(member(base, step.key.value), optional=True)
            return Value(f"{base}[{self.item(step.key)}]", optional=True)
        raise UntranslatableError("calling this value is not supported")

    def _method(self, value: Value, name: str, arguments: tuple[Any, ...]) -> Value:
        if value.kind == "date":
            return self._date_method(value, name, arguments)
        method = _METHODS.get(name)
        if method is None:
            raise UntranslatableError(f"the method `{name}` has no counterpart")
        return method(self, Value(value.text, value.rank, value.kind), arguments)

    def each(self, arguments: tuple[Any, ...]) -> tuple[str, Value]:
        """Return the parameter and body of the arrow function that is the only argument."""
        if len(arguments) != 1 or not isinstance(arguments[0], js.Arrow):
            raise UntranslatableError("the argument must be a function with one parameter")
        parameter = arguments[0].parameter
        if not _WORD.match(parameter) or parameter.startswith("__"):
            raise UntranslatableError(f"`{parameter}` cannot be used as the name of a parameter")
        self._locals.append(parameter)
        try:
            return parameter, self.present(self.value(arguments[0].body))
        finally:
            self._locals.pop()

    # Dates

    def _date_method(self, value: Value, name: str, arguments: tuple[Any, ...]) -> Value:
        if name in {"toISO", "toISOString", "toString", "toJSON"} and not arguments:
            self.notes.append("dates are in UTC and written with as many decimals as needed")
            return Value(value.text, value.rank, "text")
        if name in {"plus", "minus"} and len(arguments) == 1 and isinstance(arguments[0], js.Object):
            return self._shift(value, name, arguments[0])
        if name in {"toFormat", "format"} and len(arguments) == 1 and isinstance(arguments[0], js.Constant):
            self.notes.append("dates are formatted in UTC and in English")
            return Value(
                f"format_date({value.text}, {quoted(strftime(str(arguments[0].value)))})", kind="text"
            )
        if name in {"setZone", "toUTC"}:
            self.notes.append("dates are in UTC; the time zone is ignored")
            return value
        raise UntranslatableError(f"the method `{name}` of a date has no counterpart")

    def _shift(self, value: Value, name: str, amounts: js.Object) -> Value:
        text = value.text
        for unit, amount in amounts.members:
            plural = unit if unit is None or unit.endswith("s") else f"{unit}s"
            if plural not in _UNITS:
                raise UntranslatableError(f"`{unit}` is not a unit of time")
            sign = "-" if name == "minus" else ""
            text = f"add_time({text}, {sign}{self._at(amount, _UNARY)}, {quoted(plural)})"
        return Value(text, kind="date")


def strftime(pattern: str) -> str:
    """Translate a Luxon format to a strftime pattern."""
    found: list[str] = []
    for quoted_text, token, _, other in _LUXON_TOKEN.findall(pattern):
        if token and token not in _LUXON:
            raise UntranslatableError(f"the date format `{pattern[:40]}` has no counterpart")
        found.append(_LUXON[token] if token else (quoted_text or other).replace("%", "%%"))
    return "".join(found)


def _is_decimal(tree: Any) -> bool:
    return isinstance(tree, js.Constant) and isinstance(tree.value, float)


def _bracketed(value: Value, rank: int) -> str:
    return value.text if value.rank >= rank else f"({value.text})"


def _same_kind(left: Value, right: Value) -> bool:
    """Return whether comparing gives the same with and without conversion of types."""
    return (
        "null" in {left.text, right.text}
        or (left.kind == right.kind != "")
        or "boolean" in {left.kind, right.kind}
    )


def _function(
    name: str, count: tuple[int, ...] = (1,), kind: str = "", note: str = ""
) -> Callable[..., Value]:
    """Return a translation to a function of Rune with the same arguments."""

    def apply(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
        translator.notes += [note] if note else []
        if len(arguments) not in count:
            raise UntranslatableError(f"the call with {len(arguments)} arguments has no counterpart")
        return Value(f"{name}({', '.join(translator.item(each) for each in arguments)})", kind=kind)

    return apply


def _rounding(pattern: str) -> Callable[..., Value]:
    def apply(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
        if len(arguments) != 1:
            raise UntranslatableError("one number expected")
        return Value(pattern.format(translator.item(arguments[0])), kind="number")

    return apply


_GLOBALS: Mapping[str, Callable[[_Translator, tuple[Any, ...]], Value]] = {
    "JSON.stringify": _function("json", kind="text"),
    "JSON.parse": _function("parse_json"),
    "Object.keys": _function("keys", kind="list"),
    "Object.values": _function("values", kind="list"),
    "Object.entries": _function("items", kind="list"),
    "Math.abs": _function("abs", kind="number"),
    "Math.min": _function("min", (2, 3, 4), "number"),
    "Math.max": _function("max", (2, 3, 4), "number"),
    "Math.round": _rounding("int((({}) + 0.5) // 1)"),
    "Math.floor": _rounding("int(({}) // 1)"),
    "Math.ceil": _rounding("-int(-({}) // 1)"),
    "Math.trunc": _function("int", kind="number"),
    "Number": _function("float", kind="number", note=WHOLE_NUMBER),
    "parseFloat": _function("float", kind="number", note=WHOLE_NUMBER),
    "parseInt": lambda translator, arguments: _function("int", kind="number")(translator, arguments[:1]),
    "String": _function("str", kind="text"),
    "Boolean": _function("bool", kind="boolean"),
    "encodeURIComponent": _function("url_encode", kind="text"),
    "Array.isArray": _rounding('type({}) == "array"'),
}


def _simple(name: str, kind: str = "") -> Callable[..., Value]:
    """Return a translation of a method to a function that takes the value first."""

    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        texts = [value.text, *(translator.item(each) for each in arguments)]
        return Value(f"{name}({', '.join(texts)})", kind=kind)

    return apply


def _contains(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if len(arguments) != 1:
        raise UntranslatableError("`includes` with a position has no counterpart")
    wanted = _bracketed(translator.present(translator.value(arguments[0])), _COMPARE + 1)
    return Value(f"{_bracketed(value, _COMPARE + 1)} contains {wanted}", _COMPARE, "boolean")


def _replace(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    translator.notes.append("`replace` replaces the first occurrence in JavaScript; here it replaces all")
    return _simple("replace", "text")(translator, value, arguments)


def _slice(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if len(arguments) > 2:
        raise UntranslatableError("`slice` takes at most two arguments")
    bounds = [translator.item(each) for each in arguments]
    inside = ":".join(bounds) if len(bounds) == 2 else f"{bounds[0] if bounds else ''}:"
    return Value(f"{_bracketed(value, _ATOM)}[{inside}]", kind=value.kind)


def _map(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    name, body = translator.each(arguments)
    return Value(f"[{body.text} for {name} in {_bracketed(value, _OR)}]", kind="list")


def _filter(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    name, body = translator.each(arguments)
    return Value(f"[{name} for {name} in {_bracketed(value, _OR)} if {_bracketed(body, _OR)}]", kind="list")


def _find(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    return Value(f"first({_filter(translator, value, arguments).text})", optional=True)


def _some(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    return Value(f"len({_filter(translator, value, arguments).text}) > 0", _COMPARE, "boolean")


def _every(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    name, body = translator.each(arguments)
    text = f"len([{name} for {name} in {_bracketed(value, _OR)} if not {_bracketed(body, _NOT)}]) == 0"
    return Value(text, _COMPARE, "boolean")


def _to_fixed(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    translator.notes.append(
        "`toFixed` keeps zeros at the end; here the number is rounded and written without them"
    )
    digits = translator.item(arguments[0]) if arguments else "0"
    return Value(f"str(round({value.text}, {digits}))", kind="text")


def _is_empty(pattern: str) -> Callable[..., Value]:
    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        return Value(pattern.format(_bracketed(value, _NOT)), _NOT, "boolean")

    return apply


def _join(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    separator = translator.item(arguments[0]) if arguments else '","'
    return Value(f"join({value.text}, {separator})", kind="text")


def _concat(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    parts = [value, *(translator.present(translator.value(each)) for each in arguments)]
    return Value(" + ".join(_bracketed(each, _ADD + 1) for each in parts), _ADD, value.kind)


_METHODS: Mapping[str, Callable[[_Translator, Value, tuple[Any, ...]], Value]] = {
    "toUpperCase": _simple("upper", "text"),
    "toLowerCase": _simple("lower", "text"),
    "trim": _simple("trim", "text"),
    "split": _simple("split", "list"),
    "join": _join,
    "includes": _contains,
    "startsWith": _simple("starts_with", "boolean"),
    "endsWith": _simple("ends_with", "boolean"),
    "replace": _replace,
    "replaceAll": _simple("replace", "text"),
    "slice": _slice,
    "concat": _concat,
    "reverse": _simple("reversed", "list"),
    "flat": _simple("flatten", "list"),
    "map": _map,
    "filter": _filter,
    "find": _find,
    "some": _some,
    "every": _every,
    "toString": _simple("str", "text"),
    "toFixed": _to_fixed,
    "first": _simple("first"),
    "last": _simple("last"),
    "unique": _simple("unique", "list"),
    "keys": _simple("keys", "list"),
    "values": _simple("values", "list"),
    "isEmpty": _is_empty("not {}"),
    "isNotEmpty": _is_empty("not not {}"),
    "toInt": _simple("int", "number"),
    "toFloat": _simple("float", "number"),
    "toNumber": _simple("float", "number"),
    "urlEncode": _simple("url_encode", "text"),
    "base64Encode": _simple("base64", "text"),
    "base64Decode": _simple("from_base64", "text"),
    "sum": _simple("sum", "number"),
}
