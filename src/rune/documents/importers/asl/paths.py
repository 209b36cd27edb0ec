"""JSONPath, intrinsic functions, simple JSONata and rules of choices of state machines as Rune expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rune.documents.importers import javascript as js
from rune.documents.importers.draft import literal, mapping, sequence
from rune.documents.importers.javascript import MAX_SOURCE_CHARS, Step, UntranslatableError
from rune.documents.importers.translate import Value, member, quoted, simple_function, translate

MAX_DEPTH = 20

_STEP = re.compile(
    r"\.([A-Za-z_][\w-]*)|\['((?:[^'\\]|\\.)*)'\]|\[(-?\d{1,9})\]|\[(-?\d{0,9}:-?\d{0,9})\]|(\[\*\]|\.\*)"
)
_CONTEXT = {
    "$$.Execution.Input": "$trigger",
    "$$.Execution.Id": "$execution.id",
    "$$.Execution.Name": "$execution.id",
    "$$.Map.Item.Value": "$item",
    "$$.Map.Item.Index": "$index",
}
_TOKENS = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(!=|<=|>=|:=|=|&|\band\b|\bor\b)""")
_WORDS = {"=": " === ", "!=": " !== ", "and": " && ", "or": " || ", "&": ' + "" + '}

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


class Names(msgspec.Struct, frozen=True):
    """The expressions for what a state may read: its input, and its result where there is one."""

    input: str = "$json"
    result: str = ""
    state: str = ""
    jsonata: bool = False


def path_text(path: str, names: Names) -> str:
    """Translate a reference path, such as `$.order.lines[0]` or `$$.Map.Item.Index`."""
    for prefix, text in _CONTEXT.items():
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return _steps(text, path[len(prefix) :], path)
    if path == "$$.State.Name":
        return quoted(names.state)
    if path.startswith("$$"):
        raise UntranslatableError(f"`{path[:80]}` has no counterpart")
    if not path.startswith("$"):
        raise UntranslatableError(f"`{path[:80]}` is not a path")
    return _steps(names.input, path[1:], path)


def _steps(base: str, rest: str, path: str) -> str:
    text, at = base, 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise UntranslatableError(f"the path `{path[:80]}` has no counterpart")
        at = match.end()
        if match[1] is not None or match[2] is not None:
            text = member(text, match[1] if match[1] is not None else match[2].replace("\\'", "'"))
        elif match[3] is not None:
            text = f"{text}[{match[3]}]"
        elif match[4] is not None:
            text = f"{text}[{match[4]}]"
        else:
            inner = _steps("each", rest[at:], path)
            return f"[{inner} for each in {text}]" if inner != "each" else text
    return text


def field_name(path: str) -> str:
    """Return the dotted name that a result path such as `$.a.b` sets."""
    match = re.fullmatch(r"\$((?:\.[A-Za-z_][\w-]*)+)", path)
    if match is None:
        raise UntranslatableError(f"the result path `{path[:80]}` has no counterpart")
    return match[1][1:]


def template(value: Any, names: Names) -> Any:
    """Translate a payload template: keys that end in `.$` have paths, or `{% %}` texts have JSONata."""
    if names.jsonata:
        return _jsonata_template(value, names)
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, each in value.items():
            if key.endswith(".$"):
                if not isinstance(each, str):
                    raise UntranslatableError(f"`{key}` is not a path")
                found[key[:-2]] = f"{{{{ {expression(each, names)} }}}}"
            else:
                found[key] = template(each, names)
        return found
    if isinstance(value, list):
        return [template(each, names) for each in value]
    return literal(value)


def expression(text: str, names: Names, depth: int = 0) -> str:
    """Translate a path or an intrinsic function."""
    text = text.strip()
    if len(text) > MAX_SOURCE_CHARS:
        raise UntranslatableError(f"the expression is longer than {MAX_SOURCE_CHARS:,} characters")
    if depth > MAX_DEPTH:
        raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
    call = re.fullmatch(r"States\.(\w+)\((.*)\)", text, re.DOTALL)
    if call is None:
        return path_text(text, names)
    arguments = [_argument(each, names, depth) for each in _split(call[2])]
    intrinsic = _INTRINSICS.get(call[1])
    if intrinsic is None:
        raise UntranslatableError(f"`States.{call[1]}` has no counterpart")
    return intrinsic(arguments)


def _argument(text: str, names: Names, depth: int) -> str:
    text = text.strip()
    if text.startswith("'"):
        return quoted(re.sub(r"\\(.)", r"\1", text[1:-1]))
    if re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", text):
        return text
    return expression(text, names, depth + 1)


def _split(text: str) -> list[str]:
    """Split arguments at commas outside of quotes and parentheses."""
    parts, depth, start, at, quote = [], 0, 0, 0, False
    while at < len(text):
        char = text[at]
        if quote:
            at += 1 if char == "\\" else 0
            quote = char != "'"
        elif char == "'":
            quote = True
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    rest = text[start:]
    return [*parts, rest] if parts or rest.strip() else []


def _format(arguments: list[str]) -> str:
    if not arguments or not arguments[0].startswith('"'):
        raise UntranslatableError("`States.Format` needs a text with `{}`")
    pieces = arguments[0][1:-1].split("{}")
    if len(pieces) != len(arguments):
        raise UntranslatableError("`States.Format` has another number of arguments than `{}`")
    found = [f'"{pieces[0]}"'] if pieces[0] else []
    for piece, argument in zip(pieces[1:], arguments[1:], strict=True):
        found += [f"str({argument})", *([f'"{piece}"'] if piece else [])]
    return " + ".join(found) or '""'


def _calls(pattern: str, count: int) -> Callable[[list[str]], str]:
    def apply(arguments: list[str]) -> str:
        if len(arguments) != count:
            raise UntranslatableError(f"{count} arguments expected, found {len(arguments)}")
        return pattern.format(*arguments)

    return apply


def _hash(arguments: list[str]) -> str:
    if len(arguments) != 2 or arguments[1] != '"SHA-256"':
        raise UntranslatableError("only the hash `SHA-256` has a counterpart")
    return f"sha256({arguments[0]})"


def _merge(arguments: list[str]) -> str:
    if len(arguments) != 3 or arguments[2] != "false":
        raise UntranslatableError("a deep merge has no counterpart")
    return f"merge({arguments[0]}, {arguments[1]})"


_INTRINSICS: Mapping[str, Callable[[list[str]], str]] = {
    "Format": _format,
    "StringToJson": _calls("parse_json({})", 1),
    "JsonToString": _calls("json({})", 1),
    "Array": lambda arguments: f"[{', '.join(arguments)}]",
    "ArrayLength": _calls("len({})", 1),
    "ArrayContains": _calls("({} contains {})", 2),
    "ArrayGetItem": _calls("{}[{}]", 2),
    "ArrayUnique": _calls("unique({})", 1),
    "ArrayRange": _calls("range({}, {} + 1, {})", 3),
    "MathAdd": _calls("({} + {})", 2),
    "Base64Encode": _calls("base64({})", 1),
    "Base64Decode": _calls("from_base64({})", 1),
    "StringSplit": _calls("split({}, {})", 2),
    "UUID": _calls("uuid()", 0),
    "Hash": _hash,
    "JsonMerge": _merge,
}


# JSONata


def jsonata(text: str, names: Names) -> str:
    """Translate the inside of `{% %}`: paths from `$states`, literals, operators and functions."""

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        if match[2] == ":=":
            raise UntranslatableError("variables in JSONata are not supported")
        return _WORDS.get(match[2], match[2])

    source = _TOKENS.sub(one, text)
    return translate(source, _JsonataScope(names), functions=_FUNCTIONS).text


class _JsonataScope:
    def __init__(self, names: Names) -> None:
        self._names = names

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        if not isinstance(base, js.Name) or base.name != "$states":
            return None
        first = steps[0].name if steps else ""
        if first == "input":
            return Value(self._names.input), 1
        if first == "result" and self._names.result:
            return Value(self._names.result), 1
        if first == "context":
            path = "$$" + "".join(f".{each.name}" for each in steps[1:4])
            for size in (4, 3):
                prefix = ".".join(path.split(".")[:size])
                if prefix in _CONTEXT:
                    return Value(_CONTEXT[prefix]), size
            if path == "$$.State.Name":
                return Value(quoted(self._names.state)), 3
        raise UntranslatableError(f"`$states.{first}` has no counterpart here")


_FUNCTIONS = {
    f"${name}": simple_function(target, kind)
    for name, target, kind in (
        ("uppercase", "upper", "text"), ("lowercase", "lower", "text"), ("trim", "trim", "text"),
        ("length", "len", "number"), ("count", "len", "number"), ("sum", "sum", "number"), ("max", "max", "number"),
        ("min", "min", "number"), ("average", "avg", "number"), ("string", "str", "text"),
        ("number", "float", "number"), ("boolean", "bool", "boolean"), ("exists", "exists", "boolean"),
        ("join", "join", "text"), ("split", "split", "list"), ("merge", "merge", "object"), ("keys", "keys", "list"),
        ("abs", "abs", "number"), ("uuid", "uuid", "text"), ("now", "now", "text"), ("reverse", "reversed", "list"),
        ("distinct", "unique", "list"), ("base64encode", "base64", "text"), ("base64decode", "from_base64", "text"),
        ("parse", "parse_json", ""), ("encodeUrlComponent", "url_encode", "text"), ("replace", "replace", "text"),
    )
}  # fmt: skip


def _jsonata_template(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {key: _jsonata_template(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_jsonata_template(each, names) for each in value]
    if isinstance(value, str):
        inner = re.fullmatch(r"\s*\{%(.*)%\}\s*", value, re.DOTALL)
        if inner is not None:
            return f"{{{{ {jsonata(inner[1], names)} }}}}"
    return literal(value)


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
