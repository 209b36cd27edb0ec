"""Translate JSONata to Rune expressions.

What is undefined in JSONata is missing in Rune: operators pass it on, and a state whose expression has no value fails
in both. A translation that may give another result carries a note that says so; what has no counterpart raises
UntranslatableError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from rune.documents.importers.javascript import (
    MAX_DEPTH,
    MAX_SOURCE_CHARS,
    UntranslatableError,
    number_in,
)
from rune.documents.importers.translate import member, quoted

MAX_OPERATORS = 200

PATHS = "a field of a list is missing here; JSONata collects it from each element"
NUMBERS = (
    "numbers are written into texts as they are: 5.0 stays 5.0, and decimals are not rounded to 15 digits"
)
NESTED = (
    "a list counts as true if it has a true element; lists in lists count as true here if they are not empty"
)

# Precedence of Rune operators, loosest first.
_CHOICE, _OR, _AND, _NOT, _COMPARE, _COALESCE, _ADD, _MULTIPLY, _UNARY, _ATOM = range(10)

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*.*?\*/)
    |(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<quoted>`[^`]*`)
    |(?P<name>\$?[^\W\d]\w*|\$\$?)
    |(?P<mark>:=|!=|<=|>=|\.\.|\*\*|~>|\?:|\?\?|[-.\[\]{}()@\#;:?+*/%|=<>^&!,~])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BINDING = {
    "?": 20, "or": 25, "and": 30, "=": 40, "!=": 40, "<": 40, "<=": 40, ">": 40, ">=": 40,
    "&": 50, "+": 50, "-": 50, "*": 60, "/": 60, "%": 60, ".": 75, "[": 80,
}  # fmt: skip
_PREFIX = 70


class Value(msgspec.Struct, frozen=True):
    """A translated expression: its text, its precedence, and what is known of its value."""

    text: str
    rank: int = _ATOM
    kind: str = ""  # "text", "number", "boolean", "null", "list", "object" or unknown
    optional: bool = False  # whether it may be missing
    constant: bool = False
    plain: bool = False  # whether the text is a reference, which may be repeated
    items: tuple[Value, ...] | None = None  # of a list that is written in brackets


class Scope(Protocol):
    """What `$states` refers to."""

    def resolve(self, steps: list[str]) -> tuple[str, int, str]:
        """Return the reference that a path from `$states` begins with, how many steps it takes, and the kind of its
        value."""


class Translation(msgspec.Struct, frozen=True):
    """A Rune expression, what is known of its value, and what differs at run time."""

    text: str
    kind: str = ""
    optional: bool = False
    notes: tuple[str, ...] = ()


def translate_jsonata(source: str, scope: Scope) -> Translation:
    """Translate one JSONata expression."""
    if len(source) > MAX_SOURCE_CHARS:
        raise UntranslatableError(f"the expression is longer than {MAX_SOURCE_CHARS:,} characters")
    parser = _Parser(_tokens(source), scope)
    value = parser.whole()
    return Translation(value.text, value.kind, value.optional, tuple(dict.fromkeys(parser.notes)))


def _tokens(source: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise UntranslatableError(f"unexpected `{source[at]}`")
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match[0]))
        at = match.end()
    return [*found, ("end", "")]


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if len(match[1]) > 1:
            return chr(int(match[1][1:], 16))
        if match[1] not in _ESCAPES:
            raise UntranslatableError(f"the escape `\\{match[1]}` is not supported")
        return _ESCAPES[match[1]]

    try:
        return _ESCAPE.sub(one, text).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UntranslatableError("a text holds half of a surrogate pair") from None


# Parts of translations


def _at(value: Value, rank: int) -> str:
    return value.text if value.rank >= rank else f"({value.text})"


def _once(value: Value, write: Callable[[str], str], rank: int, kind: str = "") -> Value:
    """Return an expression that names a value several times; the value is evaluated once."""
    if value.plain or value.constant:
        return Value(write(value.text), rank, kind, value.optional)
    return Value(f"[{write('value')} for value in [{value.text}]][0]", _ATOM, kind, value.optional)


def _number(value: Value) -> Value:
    """Return a value that fails if it is not a number."""
    if value.kind == "number":
        return value
    if value.kind:
        raise UntranslatableError(f"a number is needed in place of `{value.text[:40]}`")
    return Value(f"+{_at(value, _UNARY)}", _UNARY, "number", value.optional)


def _text(value: Value) -> Value:
    """Return a value that fails if it is not a text."""
    if value.kind == "text":
        return value
    if value.kind:
        raise UntranslatableError(f"a text is needed in place of `{value.text[:40]}`")
    return Value(f'"" + {_at(value, _ADD + 1)}', _ADD, "text", value.optional)


def _sequence(value: Value) -> Value:
    """Return a value as a list: one that is not a list is its only element."""
    if value.kind == "list":
        return value
    if value.kind:
        return Value(f"[{value.text}]", kind="list", optional=value.optional)
    return Value(f"flatten([{value.text}])", kind="list", optional=value.optional)


def _object(value: Value) -> Value:
    if value.kind not in ("", "object"):
        raise UntranslatableError(f"an object is needed in place of `{value.text[:40]}`")
    return value


class _Parser:
    """Reads and translates an expression by the binding powers of its operators."""

    def __init__(self, tokens: list[tuple[str, str]], scope: Scope) -> None:
        self._tokens = tokens
        self._scope = scope
        self._at = 0
        self._depth = 0
        self._operators = 0
        self.notes: list[str] = []

    def whole(self) -> Value:
        found = self._expression(0)
        if self._tokens[self._at][0] != "end":
            raise self._unexpected()
        return found

    def _unexpected(self) -> UntranslatableError:
        kind, value = self._tokens[self._at]
        return UntranslatableError(
            "the expression ends too early" if kind == "end" else f"`{value[:40]}` has no counterpart here"
        )

    def _skip(self, mark: str) -> bool:
        if self._tokens[self._at] == ("mark", mark):
            self._at += 1
            return True
        return False

    def _take(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._unexpected()

    def _operator(self) -> str:
        kind, value = self._tokens[self._at]
        return value if kind == "mark" or (kind == "name" and value in {"and", "or"}) else ""

    def _expression(self, binding: int) -> Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
        left = self._primary()
        while _BINDING.get(self._operator(), 0) > binding:
            self._operators += 1
            if self._operators > MAX_OPERATORS:
                raise UntranslatableError(f"the expression has more than {MAX_OPERATORS} operators in a row")
            operator = self._operator()
            self._at += 1
            left = self._continued(left, operator)
        self._depth -= 1
        return left

    def _continued(self, left: Value, operator: str) -> Value:
        if operator == ".":
            return self._field(left)
        if operator == "[":
            return self._element(left)
        if operator == "?":
            return self._choice(left)
        right = self._expression(_BINDING[operator])
        if operator in {"and", "or"}:
            rank = _AND if operator == "and" else _OR
            sides = _at(self._true(left), rank), _at(self._true(right), rank + 1)
            return Value(f"{sides[0]} {operator} {sides[1]}", rank, "boolean")
        if operator == "&":
            sides = _at(self._inserted(left), _ADD), _at(self._inserted(right), _ADD + 1)
            return Value(f"{sides[0]} + {sides[1]}", _ADD, "text")
        if operator in {"=", "!="}:
            return self._equality(left, operator, right)
        return (
            self._compared(left, operator, right)
            if "<" in operator or ">" in operator
            else _arithmetic(left, operator, right)
        )

    # Values

    def _primary(self) -> Value:
        kind, value = self._tokens[self._at]
        if kind == "end":
            raise self._unexpected()
        if kind == "name" and self._tokens[self._at + 1] == ("mark", "("):
            return self._call(value)
        self._at += 1
        if kind == "number":
            return Value(quoted(number_in(value)), kind="number", constant=True)
        if kind == "text":
            return Value(quoted(_unescape(value[1:-1])), kind="text", constant=True)
        if kind == "name" and value in {"true", "false", "null"}:
            return Value(value, kind="null" if value == "null" else "boolean", constant=True)
        if kind == "name" and value == "$states":
            return self._states()
        if value == "(":
            inner = self._expression(0)
            self._take(")")
            return msgspec.structs.replace(inner, items=None)
        if value == "[":
            return self._list()
        if value == "{":
            return self._members()
        if value == "-":
            operand = self._expression(_PREFIX)
            _number(operand)
            return Value(f"-{_at(operand, _UNARY)}", _UNARY, "number", operand.optional, operand.constant)
        raise UntranslatableError(f"`{value[:40]}` has no counterpart here")

    def _states(self) -> Value:
        steps: list[str] = []
        at = self._at
        while self._tokens[at] == ("mark", ".") and self._tokens[at + 1][0] == "name":
            steps.append(self._tokens[at + 1][1])
            at += 2
        text, taken, kind = self._scope.resolve(steps)
        self._at += 2 * taken
        return Value(text, kind=kind, plain=True)

    def _field(self, base: Value) -> Value:
        kind, value = self._tokens[self._at]
        is_call = self._tokens[min(self._at + 1, len(self._tokens) - 1)] == ("mark", "(")
        if kind not in {"name", "text", "quoted"} or value.startswith("$") or is_call:
            raise self._unexpected()
        if base.kind not in {"", "object"}:
            raise UntranslatableError(f"the field `{value[:40]}` of this value has no counterpart")
        self._at += 1
        name = {"text": lambda: _unescape(value[1:-1]), "quoted": lambda: value[1:-1]}.get(
            kind, lambda: value
        )()
        if not base.kind:
            self.notes.append(PATHS)
        return Value(member(_at(base, _ATOM), name), optional=True, plain=base.plain)

    def _element(self, base: Value) -> Value:
        minus = "-" if self._skip("-") else ""
        kind, value = self._tokens[self._at]
        if kind != "number" or not value.isdigit() or self._tokens[self._at + 1] != ("mark", "]"):
            raise UntranslatableError("an index that is not a whole number, or a filter, has no counterpart")
        self._at += 2
        return Value(f"{_at(_sequence(base), _ATOM)}[{minus}{value}]", optional=True, plain=base.plain)

    def _list(self) -> Value:
        found: list[Value] = []
        while not self._skip("]"):
            nested = self._tokens[self._at] == ("mark", "[")
            item = self._expression(0)
            if nested and item.items is not None:
                item = Value(f"[{item.text}]", kind="list", items=())
            found.append(item)
            if not self._skip(","):
                self._take("]")
                break
        items = tuple(found)
        return Value(_joined(items), _ATOM if _is_flat(items) else _ADD, "list", items=items)

    def _members(self) -> Value:
        groups: list[str] = []
        pairs: list[str] = []
        while not self._skip("}"):
            kind, key = self._tokens[self._at]
            if kind != "text":
                raise UntranslatableError("a key that is not a text in quotes has no counterpart")
            self._at += 1
            self._take(":")
            value = self._expression(0)
            pair = f"{quoted(_unescape(key[1:-1]))}: {value.text}"
            if value.optional:
                groups += [f"{{{', '.join(pairs)}}}"] if pairs else []
                groups.append(f"{{{pair}}} ?? {{}}")
                pairs = []
            else:
                pairs.append(pair)
            if not self._skip(","):
                self._take("}")
                break
        groups += [f"{{{', '.join(pairs)}}}"] if pairs or not groups else []
        is_plain = len(groups) == 1 and not groups[0].endswith("?? {}")
        return Value(groups[0] if is_plain else f"merge({', '.join(groups)})", kind="object")

    # Operators

    def _choice(self, condition: Value) -> Value:
        yes = self._expression(0)
        self._take(":")
        no = self._expression(0)
        parts = [_at(each, _CHOICE + 1) for each in (yes, self._true(condition), no)]
        kind = yes.kind if yes.kind == no.kind else ""
        return Value(f"{parts[0]} if {parts[1]} else {parts[2]}", _CHOICE, kind, yes.optional or no.optional)

    def _true(self, value: Value) -> Value:
        """Return whether a value counts as true; a missing one does not."""
        found = self._boolean(value)
        if not found.optional:
            return found
        return Value(f"{_at(found, _COALESCE + 1)} ?? false", _COALESCE, "boolean")

    def _boolean(self, value: Value) -> Value:
        """Return whether a value counts as true, as `$boolean` has it."""
        if value.kind == "boolean":
            return value
        if value.kind in {"text", "number", "null", "object"}:
            return Value(f"bool({value.text})", kind="boolean", optional=value.optional)
        self.notes.append(NESTED)
        if value.kind == "list":
            text = f"bool([each for each in {_at(value, _OR)} if each])"
            return Value(text, kind="boolean", optional=value.optional)
        return _once(
            value,
            lambda x: f'bool([each for each in {x} if each] if type({x}) == "array" else {x})',
            _ATOM,
            "boolean",
        )

    def _written(self, value: Value) -> Value:
        """Return a value as text, as `$string` writes it."""
        if value.kind == "text":
            return value
        if value.kind in {"", "number", "list", "object"} and not value.text.isdigit():
            self.notes.append(NUMBERS)
        if value.kind:
            return Value(f"json({value.text})", kind="text", optional=value.optional)
        return _once(value, lambda x: f'str({x}) if {x} != null else "null"', _CHOICE, "text")

    def _inserted(self, value: Value) -> Value:
        found = self._written(value)
        return Value(f'{_at(found, _COALESCE + 1)} ?? ""', _COALESCE, "text") if found.optional else found

    def _equality(self, left: Value, operator: str, right: Value) -> Value:
        sign = "==" if operator == "=" else "!="
        text = f"{_at(left, _COMPARE + 1)} {sign} {_at(right, _COMPARE + 1)}"
        if not (left.optional or right.optional):
            return Value(text, _COMPARE, "boolean")
        return Value(f"({text}) ?? false", _COALESCE, "boolean")

    def _compared(self, left: Value, operator: str, right: Value) -> Value:
        text = f"{_at(left, _COMPARE + 1)} {operator} {_at(right, _COMPARE + 1)}"
        return Value(text, _COMPARE, "boolean", left.optional or right.optional)

    # Functions

    def _call(self, name: str) -> Value:
        self._at += 1
        self._take("(")
        arguments: list[Value] = []
        while not self._skip(")"):
            arguments.append(self._expression(0))
            if not self._skip(","):
                self._take(")")
                break
        found = _FUNCTIONS.get(name)
        if found is None:
            raise UntranslatableError(f"the function `{name[:40]}` has no counterpart")
        counts, apply = found
        if len(arguments) not in counts:
            raise UntranslatableError(f"`{name}` with {len(arguments)} arguments has no counterpart")
        value = apply(self, arguments)
        return Value(value.text, value.rank, value.kind, value.optional)

    def exists(self, arguments: list[Value]) -> Value:
        return Value(f"exists({arguments[0].text})" if arguments[0].optional else "true", kind="boolean")

    def boolean(self, arguments: list[Value]) -> Value:
        return self._boolean(arguments[0])

    def negated(self, arguments: list[Value]) -> Value:
        found = self._boolean(arguments[0])
        return Value(f"not {_at(found, _NOT)}", _NOT, "boolean", found.optional)

    def string(self, arguments: list[Value]) -> Value:
        return self._written(arguments[0])

    def number(self, arguments: list[Value]) -> Value:
        value = arguments[0]
        if value.kind == "number":
            return value
        self.notes.append(
            "`$number` reads numbers as JSON has them, and white space around them; of a boolean or a text such as "
            '"0x1F" it fails here'
        )
        if value.kind == "text":
            return _number(Value(f"parse_json({value.text})", optional=value.optional))
        found = _once(value, lambda x: f'parse_json({x}) if type({x}) == "string" else {x}', _CHOICE)
        return _number(found)

    def count(self, arguments: list[Value]) -> Value:
        found = Value(f"len({_sequence(arguments[0]).text})", kind="number")
        return Value(f"{found.text} ?? 0", _COALESCE, "number") if arguments[0].optional else found

    def join(self, arguments: list[Value]) -> Value:
        parts = _sequence(arguments[0])
        separator = _text(arguments[1]) if len(arguments) > 1 else Value('""')
        text = f'join(["" + each for each in {_at(parts, _OR)}], {separator.text})'
        return Value(text, kind="text", optional=parts.optional or separator.optional)

    def split(self, arguments: list[Value]) -> Value:
        text, separator = _text(arguments[0]), arguments[1]
        if separator.kind != "text" or not separator.constant or separator.text == '""':
            raise UntranslatableError("`$split` needs a separator that is a text of at least one character")
        return Value(f"split({text.text}, {separator.text})", kind="list", optional=text.optional)

    def replace(self, arguments: list[Value]) -> Value:
        texts = [_text(each) for each in arguments]
        return Value(
            f"replace({', '.join(each.text for each in texts)})",
            kind="text",
            optional=any(each.optional for each in texts),
        )

    def keys(self, arguments: list[Value]) -> Value:
        value = _object(arguments[0])
        self.notes.append("`$keys` of a list fails here")
        found = _once(value, lambda x: f"keys({x}) if len({x}) > 1 else first(keys({x}))", _CHOICE)
        return msgspec.structs.replace(found, optional=True)

    def merge(self, arguments: list[Value]) -> Value:
        value = _sequence(arguments[0])
        text = f"{{key: part for each in {_at(value, _OR)} for key, part in items(each)}}"
        return Value(text, kind="object", optional=value.optional)

    def distinct(self, arguments: list[Value]) -> Value:
        value = arguments[0]
        if value.kind == "list":
            return Value(f"unique({value.text})", kind="list", optional=value.optional)
        return _once(value, lambda x: f'unique({x}) if type({x}) == "array" else {x}', _CHOICE)

    def contains(self, arguments: list[Value]) -> Value:
        sides = [_text(each) for each in arguments]
        text = f"{_at(sides[0], _COMPARE + 1)} contains {_at(sides[1], _COMPARE + 1)}"
        return Value(text, _COMPARE, "boolean", sides[0].optional or sides[1].optional)


def _arithmetic(left: Value, operator: str, right: Value) -> Value:
    sides = _number(left), _number(right)
    optional = left.optional or right.optional
    if operator == "%":
        # The remainder has the sign of the dividend.
        divisor = sides[1].text
        found = _once(
            left, lambda x: f"abs({x}) % abs({divisor}) * (-1 if {x} < 0 else 1)", _MULTIPLY, "number"
        )
        return msgspec.structs.replace(found, optional=optional)
    rank = _ADD if operator in {"+", "-"} else _MULTIPLY
    return Value(f"{_at(sides[0], rank)} {operator} {_at(sides[1], rank + 1)}", rank, "number", optional)


def _is_flat(items: tuple[Value, ...]) -> bool:
    """Return whether each of the items becomes one element."""
    return all(not each.optional and each.kind not in {"", "list"} for each in items)


def _joined(items: tuple[Value, ...]) -> str:
    """Return a list of the items: missing ones are left out, the elements of lists join the others."""
    if _is_flat(items):
        return f"[{', '.join(each.text for each in items)}]"
    parts = [
        f"({each.text} ?? [])" if each.optional else _at(each, _ADD + 1) for each in map(_sequence, items)
    ]
    return " + ".join(parts)


def _listed(name: str, *, numbers: bool = False, optional: bool = False, kind: str = "number") -> _Apply:
    """Return a translation of a function that takes a list or one value in its place."""

    def apply(parser: _Parser, arguments: list[Value]) -> Value:
        value = _sequence(arguments[0])
        text = f"[+each for each in {_at(value, _OR)}]" if numbers else value.text
        return Value(f"{name}({text})", kind=kind, optional=optional or value.optional)

    return apply


def _worded(pattern: str, note: str = "", kind: str = "text", same: str = "") -> _Apply:
    """Return a translation of a function of one text; the note is for what does not match the pattern `same`."""

    def apply(parser: _Parser, arguments: list[Value]) -> Value:
        value = _text(arguments[0])
        if note and not (same and arguments[0].constant and re.fullmatch(same, value.text)):
            parser.notes.append(note)
        return Value(pattern.replace("{}", value.text), kind=kind, optional=value.optional)

    return apply


def _fixed(text: str, note: str = "") -> _Apply:
    """Return a translation of a function without arguments."""

    def apply(parser: _Parser, arguments: list[Value]) -> Value:
        parser.notes += [note] if note else []
        return Value(text, kind="text")

    return apply


def _absolute(parser: _Parser, arguments: list[Value]) -> Value:
    value = _number(arguments[0])
    return Value(f"abs({value.text})", kind="number", optional=value.optional)


_BYTES = "characters outside of ASCII are encoded as UTF-8 here"
_Apply = Callable[[_Parser, list[Value]], Value]
_FUNCTIONS: Mapping[str, tuple[tuple[int, ...], _Apply]] = {
    "$uppercase": ((1,), _worded("upper({})")),
    "$lowercase": ((1,), _worded("lower({})")),
    "$trim": ((1,), _worded('join(find_all({}, "[^ \\\\t\\\\n\\\\r]+"), " ")')),
    "$length": ((1,), _worded("len({})", kind="number")),
    "$count": ((1,), _Parser.count),
    "$sum": ((1,), _listed("sum")),
    "$max": ((1,), _listed("max", numbers=True, optional=True)),
    "$min": ((1,), _listed("min", numbers=True, optional=True)),
    "$average": ((1,), _listed("avg", numbers=True, optional=True)),
    "$reverse": ((1,), _listed("reversed", kind="list")),
    "$string": ((1,), _Parser.string),
    "$number": ((1,), _Parser.number),
    "$boolean": ((1,), _Parser.boolean),
    "$not": ((1,), _Parser.negated),
    "$exists": ((1,), _Parser.exists),
    "$join": ((1, 2), _Parser.join),
    "$split": ((2,), _Parser.split),
    "$replace": ((3,), _Parser.replace),
    "$contains": ((2,), _Parser.contains),
    "$merge": ((1,), _Parser.merge),
    "$keys": ((1,), _Parser.keys),
    "$distinct": ((1,), _Parser.distinct),
    "$abs": ((1,), _absolute),
    "$uuid": ((0,), _fixed("uuid()")),
    "$now": ((0,), _fixed("now()", "the time has up to six decimals here, three there")),
    "$base64encode": ((1,), _worded("base64({})", _BYTES, same=r"[\x00-\x7f]*")),
    "$base64decode": ((1,), _worded("from_base64({})", _BYTES)),
    "$encodeUrlComponent": (
        (1,),
        _worded("url_encode({})", "the characters `!'()*` are encoded too", same="[^!'()*]*"),
    ),
    "$parse": ((1,), _worded("parse_json({})", kind="")),
}
