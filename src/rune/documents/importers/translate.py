"""Translate parsed JavaScript to Rune expressions.

What the names of an expression refer to is decided by a `Scope` of the source format. A translation that may give
another result than JavaScript for some values carries a note that says so; what has no counterpart raises
UntranslatableError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
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
MIXED_ORDER = "`<` and `>` convert a text to a number in JavaScript; here both must be numbers or both texts"
TEXT_FORM = (
    "a text with null, a missing value, a list or an object has `null`, `undefined`, `1,2` or `[object Object]` in "
    "JavaScript; here null is written as nothing, and others as JSON"
)
DATE_TEXT = "dates are in UTC and written with as many decimals as needed"
DATE_ORDER = "dates are compared as texts; both must be written in the same way"
LEADING_DIGITS = (
    "`{}` reads the digits at the beginning of a text in JavaScript; here the whole text must be a number"
)
DOLLARS = (
    "`$&`, `$$` and the like in what replaces a text are patterns in JavaScript; here they are plain text"
)
JSON_TEXT = "numbers such as 5.0, and fields whose names are numbers, are written as they are here"
_FALSE = '[null, false, 0, ""]'
_REFERENCE = re.compile(r"[$\w.]+")
_NUMBER_LITERAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_POSITION = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_PLAIN_DIGITS = 21
_MAX_PLAIN_ZEROS = 6


class Value(msgspec.Struct, frozen=True):
    """A translated expression: its text, precedence, type as far as it is known, and whether it may be missing."""

    text: str
    rank: int = _ATOM
    kind: str = ""  # "text", "number", "boolean", "list", "object", "date", "null", "undefined" or unknown
    optional: bool = False
    whole: bool = False  # of numbers: it has no decimals


class Scope(Protocol):
    """What names refer to."""

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        """Return the value that a path begins with and how many steps it takes; None if it is not a reference."""


class Translation(msgspec.Struct, frozen=True):
    """A Rune expression and what differs from JavaScript at run time."""

    text: str
    notes: tuple[str, ...] = ()
    kind: str = ""
    whole: bool = False


Functions = Mapping[str, Callable[["_Translator", tuple[Any, ...]], Value]]
"""Functions of the source language by name, and how their calls are translated."""


def translate(source: str, scope: Scope, *, functions: Functions | None = None) -> Translation:
    """Translate one JavaScript expression.

    `functions` replace the global functions of JavaScript, in a language whose operators do not convert types.
    """
    translator = _Translator(scope, functions)
    value = translator.present(translator.value(js.parse(source)))
    return Translation(value.text, tuple(dict.fromkeys(translator.notes)), value.kind, value.whole)


def number_text(text: str) -> str:
    """Return the expression of a number as a text, as JavaScript writes it."""
    if _NUMBER_LITERAL.fullmatch(text):
        return quoted(_written_number(json.loads(text)))
    return f"[{_number_as_text('n')} for n in [{text}]][0]"


def _number_as_text(name: str) -> str:
    """Return the expression that writes a number as JavaScript does. One that is written with an exponent, there or
    here, fails, as does what is no number."""
    written = f"str(int({name}) if {name} % 1 == 0 else {name})"
    plain = f"{name} == 0 or 0.0001 <= abs({name}) < 1e21"
    return f'{written} if {plain} else parse_json("too large or small for a text")'


def _written_number(value: float) -> str:
    """Write a number as JavaScript does."""
    parts = Decimal(repr(abs(value))).as_tuple()
    digits, exponent = parts.digits, int(parts.exponent)
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    sign = "-" if value < 0 else ""
    if not text:
        return "0"
    if len(text) <= point <= _MAX_PLAIN_DIGITS:
        return f"{sign}{text}{'0' * (point - len(text))}"
    if 0 < point <= _MAX_PLAIN_DIGITS:
        return f"{sign}{text[:point]}.{text[point:]}"
    if -_MAX_PLAIN_ZEROS < point <= 0:
        return f"{sign}0.{'0' * -point}{text}"
    decimals = f".{text[1:]}" if text[1:] else ""
    return f"{sign}{text[0]}{decimals}e{point - 1:+d}"


def list_text(text: str, separator: str = '","') -> str:
    """Return the expression of the elements of a list as a text. A list or an object inside of it fails: JavaScript
    writes neither as JSON."""
    plain = 'each if type(each) in ["string", "boolean", "null"] else '
    return f"join([{plain}{_number_as_text('each')} for each in {text}], {separator})"


def _named(text: str, write: Callable[[str], str], rank_text: str = "value") -> str:
    """Return an expression that names a value several times and evaluates it once."""
    if _REFERENCE.fullmatch(text):
        return f"({write(text)})"
    return f"[{write(rank_text)} for {rank_text} in [{text}]][0]"


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
    def __init__(self, scope: Scope, functions: Functions | None) -> None:
        self._scope = scope
        self._functions = _GLOBALS if functions is None else functions
        self._converts = functions is None
        self.locals: list[str] = []
        self.notes: list[str] = []

    # Values

    def value(self, tree: Any) -> Value:
        """Translate a tree; the value may be missing at run time where `optional` is set."""
        if isinstance(tree, js.Constant):
            return Value("null", kind="undefined") if tree.undefined else self._constant(tree.value)
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
        yes, no = (self.present(self.value(each)) for each in (tree.yes, tree.no))
        parts = [_bracketed(each, _CHOICE + 1) for each in (yes, self.condition(tree.condition), no)]
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
        kinds = {str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}
        return Value(quoted(value), kind=kinds.get(type(value), ""), whole=type(value) is int)

    def _template(self, tree: js.TextTemplate) -> Value:
        parts = [
            quoted(each) if isinstance(each, str) else _bracketed(self.text(self.value(each)), _ADD + 1)
            for each in tree.parts
        ]
        parts = [each for each in parts if each != '""'] or ['""']
        return Value(" + ".join(parts), _ATOM if len(parts) == 1 else _ADD, "text")

    def _object(self, tree: js.Object) -> Value:
        groups: list[str] = []
        pairs: list[str] = []
        for key, each in _in_order(tree.members):
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

    # Types

    def text(self, value: Value) -> Value:
        """Return a value as a text, written as JavaScript writes it as far as its type is known."""
        if value.kind == "text":
            return self.present(value)
        if value.kind == "number" and not value.whole and self._converts:
            return Value(number_text(value.text), kind="text")
        if value.kind == "list" and self._converts:
            return Value(list_text(_bracketed(value, _OR)), kind="text")
        if value.kind in {"null", "undefined"} and self._converts:
            return Value(quoted(value.kind), kind="text")
        if value.kind == "date":
            self.notes.append(DATE_TEXT)
        elif value.kind not in {"number", "boolean"} and self._converts:
            self.notes.append(TEXT_FORM)
        return Value(f"str({self.present(value).text})", kind="text")

    def number(self, value: Value) -> Value:
        """Return a value as a number. A text that is none fails at run time, where JavaScript gives NaN."""
        if value.kind == "number":
            return value
        if value.kind == "boolean":
            return Value(f"int({value.text})", kind="number", whole=True)
        if not self._converts:
            return Value(f"+{_bracketed(self.present(value), _UNARY)}", _UNARY, "number")
        if value.kind in {"list", "object", "date"}:
            raise UntranslatableError(f"{_KIND_NAMES[value.kind]} as a number has no counterpart")
        if value.kind == "undefined":
            raise UntranslatableError("`undefined` as a number has no counterpart")
        if value.kind == "null":
            return Value("0", kind="number", whole=True)
        if value.kind == "text" and value.text.startswith('"'):
            return self._constant(_literal_number(value.text))
        if value.kind == "text":
            return Value(f'+parse_json({_bracketed(value, _OR + 1)} or "0")', _UNARY, "number")

        def written(name: str) -> str:
            return f'int({name}) if type({name}) == "boolean" else +parse_json(str({name}) or "0")'

        return Value(_named(value.text, written), kind="number")

    def condition(self, tree: Any) -> Value:
        """Translate a tree to what is true if JavaScript counts its value as true."""
        if isinstance(tree, js.Binary) and tree.operator in {"&&", "||"}:
            rank, word = (_AND, "and") if tree.operator == "&&" else (_OR, "or")
            left, right = self.condition(tree.left), self.condition(tree.right)
            return Value(f"{_bracketed(left, rank)} {word} {_bracketed(right, rank + 1)}", rank, "boolean")
        if isinstance(tree, js.Unary) and tree.operator == "!":
            return self._not(tree.operand)
        return self._truth(self.value(tree))

    def _truth(self, value: Value) -> Value:
        if not self._converts or value.kind in {"boolean", "number", "text"}:
            return self.present(value)
        if value.kind in {"list", "object", "date"} and not value.optional:
            return Value("true", kind="boolean")
        return Value(f"{_bracketed(self.present(value), _COMPARE + 1)} not in {_FALSE}", _COMPARE, "boolean")

    def _not(self, tree: Any) -> Value:
        held = self.condition(tree)
        if held.text.endswith(f" not in {_FALSE}") and held.rank == _COMPARE:
            return Value(f"{held.text.removesuffix(f' not in {_FALSE}')} in {_FALSE}", _COMPARE, "boolean")
        return Value(f"not {_bracketed(held, _NOT)}", _NOT, "boolean")

    # Operators

    def _unary(self, tree: js.Unary) -> Value:
        if tree.operator == "!":
            return self._not(tree.operand)
        operand = self.value(tree.operand)
        if tree.operator == "typeof":
            return self._type_of(operand)
        if tree.operator == "+":
            return self.number(operand)
        return self._negated(operand)

    def _negated(self, operand: Value) -> Value:
        value = self.number(operand)
        return Value(f"-{_bracketed(value, _UNARY)}", _UNARY, "number", whole=value.whole)

    def _type_of(self, value: Value) -> Value:
        if value.kind == "undefined":
            return Value('"undefined"', kind="text")
        kind = f"type({value.text})"
        text = f'"object" if {kind} in ["array", "null"] else {kind}'
        if value.optional:
            text = f'({text}) if exists({value.text}) else "undefined"'
        return Value(text, _CHOICE, "text")

    def _binary(self, tree: js.Binary) -> Value:
        operator = tree.operator
        if operator == "??":
            return self._coalesce(tree)
        if operator in {"&&", "||"}:
            return self._logical(tree)
        if operator == "+":
            return self._add(tree)
        if operator in {"-", "*", "/", "%", "**"}:
            return self._calculate(tree)
        if operator in {"<", ">", "<=", ">="}:
            return self._order(tree)
        return self._equality(tree)

    def _coalesce(self, tree: js.Binary) -> Value:
        first = self.value(tree.left)
        if first.kind in {"null", "undefined"}:
            return self.value(tree.right)
        if first.kind and not first.optional:
            return first
        second = self.present(self.value(tree.right))
        text = f"{_bracketed(first, _COALESCE + 1)} ?? {_bracketed(second, _COALESCE + 1)}"
        return Value(text, _COALESCE, first.kind if first.kind == second.kind else "")

    def _logical(self, tree: js.Binary) -> Value:
        """Translate `&&` and `||`, whose value is that of an operand."""
        operands = [self.value(each) for each in _operands(tree)]
        decided = {"boolean", "number", "text"}
        kinds = {each.kind for each in operands}
        kind = kinds.pop() if len(kinds) == 1 else ""
        if not self._converts or all(each.kind in decided and not each.optional for each in operands[:-1]):
            rank, word = (_AND, "and") if tree.operator == "&&" else (_OR, "or")
            parts = [_bracketed(self.present(each), rank + 1) for each in operands]
            return Value(f" {word} ".join(parts), rank, kind)
        found = self.present(operands[-1])
        for each in reversed(operands[:-1]):
            held = _bracketed(self._truth(each), _CHOICE + 1)
            rest = _bracketed(found, _CHOICE + 1)
            if tree.operator == "||":
                text = f"{_bracketed(each, _CHOICE + 1)} if {held} else {rest}"
            else:
                text = f"{rest} if {held} else {_bracketed(self.present(each), _CHOICE + 1)}"
            found = Value(text, _CHOICE, kind)
        return found

    def _calculate(self, tree: js.Binary) -> Value:
        operator = tree.operator
        left, right = self.number(self.value(tree.left)), self.number(self.value(tree.right))
        if operator == "%":
            self.notes.append(
                "`%` of a negative number is negative in JavaScript; here it has the sign of the divisor"
            )
        if operator == "/" or (operator != "**" and (_is_decimal(tree.left) or _is_decimal(tree.right))):
            self.notes.append(WHOLE_NUMBER)
        if operator == "**":
            text = f"{_bracketed(left, _POWER + 1)} ** {_bracketed(right, _POWER)}"
            return Value(text, _POWER, "number")
        rank = _ADD if operator == "-" else _MULTIPLY
        whole = operator != "/" and left.whole and right.whole
        text = f"{_bracketed(left, rank)} {operator} {_bracketed(right, rank + 1)}"
        return Value(text, rank, "number", whole=whole)

    def _order(self, tree: js.Binary) -> Value:
        left, right = self.value(tree.left), self.value(tree.right)
        kinds = {left.kind, right.kind}
        if self._converts and kinds & {"number", "boolean"}:
            left, right = self.number(left), self.number(right)
        elif kinds == {"date"}:
            self.notes.append(DATE_ORDER)
        elif self._converts and kinds != {"text"}:
            self.notes.append(DATE_ORDER if "date" in kinds else MIXED_ORDER)
        return self._compared(left, tree.operator, right)

    def _compared(self, left: Value, operator: str, right: Value) -> Value:
        sides = [_bracketed(self.present(each), _COMPARE + 1) for each in (left, right)]
        return Value(f"{sides[0]} {operator} {sides[1]}", _COMPARE, "boolean")

    def _equality(self, tree: js.Binary) -> Value:
        left, right = self.value(tree.left), self.value(tree.right)
        denied = tree.operator.startswith("!")
        nothing = next((each for each in (tree.right, tree.left) if _is_nothing(each)), None)
        if nothing is not None and self._converts and tree.operator in {"===", "!=="}:
            value = left if nothing is tree.right else right
            if value.kind in {"null", "undefined"}:
                return Value(quoted((left.kind == right.kind) is not denied), kind="boolean")
            if value.optional:
                return _is_exactly(value, undefined=nothing.undefined, denied=denied)
        if nothing is None and self._converts:
            if {left.kind, right.kind} & {"list", "object"}:
                raise UntranslatableError("two lists or objects are never equal in JavaScript")
            if tree.operator in {"==", "!="} and not left.kind == right.kind != "":
                self.notes.append(LOOSE_EQUALITY)
        elif nothing is None and tree.operator in {"==", "!="} and not _same_kind(left, right):
            self.notes.append(LOOSE_EQUALITY)
        return self._compared(left, "!=" if denied else "==", right)

    def _add(self, tree: js.Binary) -> Value:
        left, right = self.value(tree.left), self.value(tree.right)
        kinds = {left.kind, right.kind}
        if "text" in kinds or (self._converts and kinds & {"list", "object", "date"}):
            sides = [self.text(each) for each in (left, right)]
            return Value(f"{_bracketed(sides[0], _ADD)} + {_bracketed(sides[1], _ADD + 1)}", _ADD, "text")
        if "" in kinds:
            self.notes.append(MIXED_ADDITION)
        known = {"boolean", "null", "undefined"}
        sides = [self.number(each) if each.kind in known else self.present(each) for each in (left, right)]
        kind = "" if kinds == {""} else "number"
        text = f"{_bracketed(sides[0], _ADD)} + {_bracketed(sides[1], _ADD + 1)}"
        return Value(text, _ADD, kind, whole=sides[0].whole and sides[1].whole)

    # Paths

    def _path(self, base: Any, steps: tuple[Step, ...]) -> Value:
        found = (
            None
            if isinstance(base, js.Name) and base.name in self.locals
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
                value = msgspec.structs.replace(value, optional=value.optional or step.optional)
                at += 2
                continue
            value = self._step(value, step)
            at += 1
        return value

    def _name(self, name: str, steps: tuple[Step, ...]) -> tuple[Value, int]:
        if name in self.locals:
            return Value(name), 0
        if steps and steps[0].kind == "call" and name in self._functions:
            return self._functions[name](self, steps[0].arguments), 1
        if len(steps) > 1 and steps[1].kind == "call" and f"{name}.{steps[0].name}" in self._functions:
            return self._functions[f"{name}.{steps[0].name}"](self, steps[1].arguments), 2
        shown = f"{name}.{steps[0].name}" if steps and steps[0].kind == "name" else name
        raise UntranslatableError(f"`{shown}` has no counterpart")

    def _step(self, value: Value, step: Step) -> Value:
        base = _bracketed(value, _ATOM)
        is_length = step.name == "length" if step.kind == "name" else step.key == js.Constant("length")
        if is_length and value.kind not in {"object", "date"}:
            if value.kind or not self._converts:
                return Value(f"len({base})", kind="number", whole=True, optional=step.optional)
            # The `length` of an object is a field, and not a number of elements.
            text = _named(
                value.text, lambda name: f'len({name}) if type({name}) != "object" else +{name}.length'
            )
            return Value(text, kind="number", optional=step.optional)
        if step.kind == "name":
            if value.kind == "date":
                raise UntranslatableError(f"`{step.name}` of a date has no counterpart")
            return Value(member(base, step.name), optional=True)
        if step.kind == "key":
            return self._element(value, step)
        raise UntranslatableError("calling this value is not supported")

    def _element(self, value: Value, step: Step) -> Value:
        base, tree = _bracketed(value, _ATOM), step.key
        # A slice of an object fails: a number is a position here, and also the name of a field in JavaScript.
        listed = base
        if not value.kind and self._converts:
            listed = f"({value.text} ?? [])[:]" if step.optional else f"{base}[:]"
        if isinstance(tree, js.Constant) and type(tree.value) is int and tree.value >= 0:
            return Value(f"{listed}[{tree.value}]", optional=True)
        if isinstance(tree, js.Constant) and isinstance(tree.value, str):
            if self._converts and _POSITION.fullmatch(tree.value) and value.kind != "object":
                at = int(tree.value)
                if value.kind:
                    return Value(f"{base}[{at}]", optional=True)
                text = _named(value.text, lambda name: f'{name}[{at}] ?? {name}["{at}"]')
                return Value(text, optional=True)
            return Value(member(base, tree.value), optional=True)
        if isinstance(tree, js.Unary) and tree.operator == "-" and self._converts:
            return Value("null")
        key = self.present(self.value(tree))
        if key.kind == "number" and self._converts:
            # A negative index counts from the end here, and finds nothing in JavaScript.
            return Value(
                f"({listed}[{key.text}] if {_bracketed(key, _COMPARE + 1)} >= 0 else null)", optional=True
            )
        if not key.kind and self._converts:
            return Value(f"({base}[{key.text}] ?? {base}[str({key.text})])", optional=True)
        return Value(f"{base}[{key.text}]", optional=True)

    def _method(self, value: Value, name: str, arguments: tuple[Any, ...]) -> Value:
        if value.kind == "date":
            return self._date_method(value, name, arguments)
        method = _METHODS.get(name)
        if method is None:
            raise UntranslatableError(f"the method `{name}` has no counterpart")
        return method(self, Value(value.text, value.rank, value.kind), arguments)

    def each(self, arguments: tuple[Any, ...], *, condition: bool = False) -> tuple[str, Value]:
        """Return the parameter and body of the arrow function that is the only argument."""
        if len(arguments) != 1 or not isinstance(arguments[0], js.Arrow):
            raise UntranslatableError("the argument must be a function with one parameter")
        parameter = arguments[0].parameter
        if not _WORD.match(parameter) or parameter.startswith("__"):
            raise UntranslatableError(f"`{parameter}` cannot be used as the name of a parameter")
        self.locals.append(parameter)
        try:
            body = arguments[0].body
            return parameter, self.condition(body) if condition else self.present(self.value(body))
        finally:
            self.locals.pop()

    # Dates

    def _date_method(self, value: Value, name: str, arguments: tuple[Any, ...]) -> Value:
        if name in {"toISO", "toISOString", "toString", "toJSON"} and not arguments:
            self.notes.append(DATE_TEXT)
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


def _in_order(members: tuple[tuple[str | None, Any], ...]) -> list[tuple[str | None, Any]]:
    """Return the members of an object in the order of JavaScript: names that are whole numbers come first."""
    if any(key is None for key, _ in members):
        if any(key is not None and _POSITION.fullmatch(key) for key, _ in members):
            raise UntranslatableError("names that are numbers beside a spread object have no counterpart")
        return list(members)
    last = {str(key): each for key, each in members}
    numbers = sorted((each for each in last if _POSITION.fullmatch(each)), key=int)
    return [(key, last[key]) for key in dict.fromkeys([*numbers, *last])]


def _is_decimal(tree: Any) -> bool:
    return isinstance(tree, js.Constant) and isinstance(tree.value, float)


_KIND_NAMES = {"list": "a list", "object": "an object", "date": "a date"}


def _literal_number(text: str) -> int | float:
    """Return the number that a quoted text stands for."""
    given = json.loads(text).strip()
    digits = given[1:] if given[:1] in {"+", "-"} else given
    if not given:
        return 0
    try:
        found = js.number_in(digits)
    except UntranslatableError:
        raise UntranslatableError(f"the text {text[:40]} is not a number") from None
    return -found if given.startswith("-") else found


def _operands(tree: Any) -> list[Any]:
    """Return the operands of a row of the same operator."""
    found = [tree.right]
    left = tree.left
    while isinstance(left, js.Binary) and left.operator == tree.operator:
        found.append(left.right)
        left = left.left
    return [left, *reversed(found)]


def _is_nothing(tree: Any) -> bool:
    return isinstance(tree, js.Constant) and tree.value is None


def _is_exactly(value: Value, *, undefined: bool, denied: bool) -> Value:
    """Return whether a value that may be missing is undefined, or is null."""
    if undefined:
        text = f"exists({value.text})"
        return Value(text, kind="boolean") if denied else Value(f"not {text}", _NOT, "boolean")
    side = _bracketed(value, _COMPARE + 1)
    if denied:
        return Value(f"not exists({value.text}) or {side} != null", _OR, "boolean")
    return Value(f"exists({value.text}) and {side} == null", _AND, "boolean")


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
        (given,) = _values(translator, arguments, (1,))
        return Value(pattern.format(translator.number(given).text), kind="number", whole=True)

    return apply


def _values(translator: _Translator, arguments: tuple[Any, ...], count: tuple[int, ...]) -> list[Value]:
    if len(arguments) not in count:
        raise UntranslatableError(f"the call with {len(arguments)} arguments has no counterpart")
    return [translator.value(each) for each in arguments]


def _of_numbers(name: str, count: tuple[int, ...]) -> Callable[..., Value]:
    def apply(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
        numbers = [translator.number(each) for each in _values(translator, arguments, count)]
        whole = all(each.whole for each in numbers)
        return Value(f"{name}({', '.join(each.text for each in numbers)})", kind="number", whole=whole)

    return apply


def _parse_number(name: str) -> Callable[..., Value]:
    """Return a translation of a function that reads a number at the beginning of a text."""

    def apply(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
        is_whole = name == "parseInt"
        if is_whole and len(arguments) == 2:
            if arguments[1] != js.Constant(10):
                raise UntranslatableError("`parseInt` with another base than 10 has no counterpart")
            arguments = arguments[:1]
        (given,) = _values(translator, arguments, (1,))
        if given.kind != "number":
            translator.notes.append(LEADING_DIGITS.format(name))
        text = f"float({translator.present(given).text})"
        if is_whole:
            return Value(f"int({text})", kind="number", whole=True)
        translator.notes.append(WHOLE_NUMBER)
        return Value(text, kind="number")

    return apply


def _to_number(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
    given = _values(translator, arguments, (0, 1))
    return translator.number(given[0]) if given else Value("0", kind="number", whole=True)


def _to_text(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
    given = _values(translator, arguments, (0, 1))
    return translator.text(given[0]) if given else Value('""', kind="text")


def _to_boolean(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
    _values(translator, arguments, (1,))
    held = translator.condition(arguments[0])
    return held if held.kind == "boolean" else Value(f"bool({held.text})", kind="boolean")


def _is_list(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
    (given,) = _values(translator, arguments, (1,))
    return Value(f'type({translator.present(given).text}) == "array"', _COMPARE, "boolean")


_KEYS = (
    '([str(n) for n in sorted([int(key) for key in keys(value) if matches(key, "^(0|[1-9][0-9]{0,9})$")])]'
    ' + [key for key in keys(value) if not matches(key, "^(0|[1-9][0-9]{0,9})$")])'
)
"""The names of the fields of `value` in the order of JavaScript: those that are whole numbers come first."""


def _ordered(pattern: str, text: str) -> Value:
    return Value(f"[{pattern.replace('{keys}', _KEYS)} for value in [{text}]][0]", kind="list")


def _fields_of(pattern: str) -> Callable[..., Value]:
    """Return a translation of a function that lists the fields of an object."""

    def apply(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
        (given,) = _values(translator, arguments, (1,))
        return _ordered(pattern, translator.present(given).text)

    return apply


def encoded(text: str) -> str:
    """Return the expression of a text in a URL; `!'()*` stay as they are."""
    found = f"url_encode({text})"
    for char in "!'()*":
        found = f'replace({found}, "%{ord(char):X}", "{char}")'
    return found


def _encode(translator: _Translator, arguments: tuple[Any, ...]) -> Value:
    (given,) = _values(translator, arguments, (1,))
    return Value(encoded(translator.text(given).text), kind="text")


_GLOBALS: Mapping[str, Callable[[_Translator, tuple[Any, ...]], Value]] = {
    "JSON.stringify": _function("json", kind="text", note=JSON_TEXT),
    "JSON.parse": _function("parse_json"),
    "Object.keys": _fields_of("{keys}"),
    "Object.values": _fields_of("[value[key] for key in {keys}]"),
    "Object.entries": _fields_of("[[key, value[key]] for key in {keys}]"),
    "Math.abs": _of_numbers("abs", (1,)),
    "Math.min": _of_numbers("min", (2, 3, 4)),
    "Math.max": _of_numbers("max", (2, 3, 4)),
    "Math.round": _rounding("int((({}) + 0.5) // 1)"),
    "Math.floor": _rounding("int(({}) // 1)"),
    "Math.ceil": _rounding("-int(-({}) // 1)"),
    "Math.trunc": _rounding("int({})"),
    "Number": _to_number,
    "parseFloat": _parse_number("parseFloat"),
    "parseInt": _parse_number("parseInt"),
    "String": _to_text,
    "Boolean": _to_boolean,
    "encodeURIComponent": _encode,
    "Array.isArray": _is_list,
}


def _simple(name: str, kind: str = "", count: int = 0, *, optional: bool = False) -> Callable[..., Value]:
    """Return a translation of a method to a function that takes the value first."""

    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        if len(arguments) != count:
            raise UntranslatableError(f"`{name}` with {len(arguments)} arguments has no counterpart")
        texts = [value.text, *(translator.item(each) for each in arguments)]
        return Value(f"{name}({', '.join(texts)})", kind=kind, optional=optional)

    return apply


def _split(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if not arguments:
        return Value(f'[{_bracketed(value, _ADD)} + ""]', kind="list")
    if arguments[0] == js.Constant(""):
        raise UntranslatableError("splitting a text into its characters has no counterpart")
    return _simple("split", "list", 1)(translator, value, arguments)


def _to_string(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if arguments:
        raise UntranslatableError("`toString` with a base has no counterpart")
    if value.kind in {"null", "undefined"}:
        raise UntranslatableError(f"`{value.kind}` has no methods")
    return translator.text(value)


def _method_to_number(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if arguments:
        raise UntranslatableError("`toNumber` takes no arguments")
    return translator.number(value)


def _contains(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if len(arguments) != 1:
        raise UntranslatableError("`includes` with a position has no counterpart")
    wanted = _bracketed(translator.present(translator.value(arguments[0])), _COMPARE + 1)
    return Value(f"{_bracketed(value, _COMPARE + 1)} contains {wanted}", _COMPARE, "boolean")


def _constant_text(value: Value) -> str | None:
    """Return the text of a constant; None if the value is none, or not known."""
    if value.kind != "text" or not value.text.startswith('"'):
        return None
    try:
        return str(json.loads(value.text))
    except ValueError:
        return None


def _replaced(*, every: bool) -> Callable[..., Value]:
    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        if len(arguments) != 2:
            raise UntranslatableError(f"`replace` with {len(arguments)} arguments has no counterpart")
        searched, by = (translator.text(translator.value(each)) for each in arguments)
        if _constant_text(searched) == "":
            raise UntranslatableError("replacing an empty text has no counterpart")
        plain = _constant_text(by)
        if plain is None:
            translator.notes.append(DOLLARS)
        else:
            rest = plain.replace("$$", "")
            if any(mark in rest for mark in ("$&", "$`", "$'")):
                raise UntranslatableError(f"the pattern `{plain[:40]}` of a replacement has no counterpart")
            by = Value(quoted(plain.replace("$$", "$")), kind="text")
        if not every:
            translator.notes.append(
                "`replace` replaces the first occurrence in JavaScript; here it replaces all"
            )
        return Value(f"replace({value.text}, {searched.text}, {by.text})", kind="text")

    return apply


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
    name, body = translator.each(arguments, condition=True)
    return Value(f"[{name} for {name} in {_bracketed(value, _OR)} if {_bracketed(body, _OR)}]", kind="list")


def _find(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    return Value(f"first({_filter(translator, value, arguments).text})", optional=True)


def _some(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    return Value(f"len({_filter(translator, value, arguments).text}) > 0", _COMPARE, "boolean")


def _every(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    name, body = translator.each(arguments, condition=True)
    text = f"len([{name} for {name} in {_bracketed(value, _OR)} if not {_bracketed(body, _NOT)}]) == 0"
    return Value(text, _COMPARE, "boolean")


def _to_fixed(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    translator.notes.append(
        "`toFixed` keeps zeros at the end and rounds a half up; here it is rounded to even and written without them"
    )
    digits = translator.item(arguments[0]) if arguments else "0"
    return Value(f"str(round({value.text}, {digits}))", kind="text")


def _is_empty(pattern: str) -> Callable[..., Value]:
    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        return Value(pattern.format(_bracketed(value, _NOT)), _NOT, "boolean")

    return apply


def _join(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    separator = translator.item(arguments[0]) if arguments else '","'
    return Value(list_text(_bracketed(value, _OR), separator), kind="text")


def _concat(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if value.kind == "text":
        texts = [value, *(translator.text(translator.value(each)) for each in arguments)]
        return Value(" + ".join(_bracketed(each, _ADD + 1) for each in texts), _ADD, "text")
    values = [translator.value(each) for each in arguments]
    listed = ", ".join(translator.present(each).text for each in values)
    if value.kind == "list":
        return Value(f"flatten([{', '.join(each for each in (value.text, listed) if each)}])", kind="list")
    name = "value"
    while name in translator.locals:
        name += "_"
    appended = " + ".join([name, *(_bracketed(translator.text(each), _ADD + 1) for each in values)])
    joined = f"{name}[:] + flatten([{listed}])"
    text = f'[{appended} if type({name}) == "string" else {joined} for {name} in [{value.text}]][0]'
    return Value(text)


def _own_fields(pattern: str) -> Callable[..., Value]:
    def apply(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
        if arguments:
            raise UntranslatableError("fields with arguments have no counterpart")
        return _ordered(pattern, value.text)

    return apply


def _url_encode(translator: _Translator, value: Value, arguments: tuple[Any, ...]) -> Value:
    if arguments:
        raise UntranslatableError("`urlEncode` with arguments has no counterpart")
    return Value(encoded(value.text), kind="text")


_METHODS: Mapping[str, Callable[[_Translator, Value, tuple[Any, ...]], Value]] = {
    "toUpperCase": _simple("upper", "text"),
    "toLowerCase": _simple("lower", "text"),
    "trim": _simple("trim", "text"),
    "split": _split,
    "join": _join,
    "includes": _contains,
    "startsWith": _simple("starts_with", "boolean", 1),
    "endsWith": _simple("ends_with", "boolean", 1),
    "replace": _replaced(every=False),
    "replaceAll": _replaced(every=True),
    "slice": _slice,
    "concat": _concat,
    "reverse": _simple("reversed", "list"),
    "flat": _simple("flatten", "list"),
    "map": _map,
    "filter": _filter,
    "find": _find,
    "some": _some,
    "every": _every,
    "toString": _to_string,
    "toFixed": _to_fixed,
    "first": _simple("first", optional=True),
    "last": _simple("last", optional=True),
    "unique": _simple("unique", "list"),
    "keys": _own_fields("{keys}"),
    "values": _own_fields("[value[key] for key in {keys}]"),
    "isEmpty": _is_empty("not {}"),
    "isNotEmpty": _is_empty("not not {}"),
    "toInt": _simple("int", "number"),
    "toFloat": _simple("float", "number"),
    "toNumber": _method_to_number,
    "urlEncode": _url_encode,
    "base64Encode": _simple("base64", "text"),
    "base64Decode": _simple("from_base64", "text"),
    "sum": _simple("sum", "number"),
}
