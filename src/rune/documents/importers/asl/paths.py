"""JSONPath, intrinsic functions and rules of choices of state machines as Rune expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rune.documents.importers.asl.jsonata import translate_jsonata
from rune.documents.importers.draft import literal, mapping, sequence
from rune.documents.importers.javascript import MAX_SOURCE_CHARS, UntranslatableError
from rune.documents.importers.translate import member, quoted

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
_ORDER = {
    "Equals": "==",
    "LessThan": "<",
    "GreaterThan": ">",
    "LessThanEquals": "<=",
    "GreaterThanEquals": ">=",
}

_TYPES = {"String": "string", "Numeric": "number", "Boolean": "boolean"}
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

_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
_TIMES = "a time that does not exist, or has more than six decimals, fails here"
_EXISTING = "whether the time exists is not checked"
_BOOLEANS = "a condition that is not true or false counts as false here; there it fails"
_STRUCTURES = "a list or an object is written into texts as JSON here, there as `[1, 2]` and `{a=1}`"
_IDS = "the id and the name of the execution are its id in Rune, not an ARN"
_HALVES = "a half is rounded to the even number here, which may differ"
_FROM_END = "a negative index counts from the end here; there it fails"
_TEXTS_ONLY = "data that is not a text fails here"


class Names(msgspec.Struct, frozen=True):
    """The expressions for what a state may read: its input, and its result where there is one."""

    input: str = "$json"
    result: str = ""
    is_shaped: bool = False  # whether the result is an object of known fields
    state: str = ""
    jsonata: bool = False
    notes: list[str] = msgspec.field(default_factory=list)  # what differs at run time


def path_text(path: str, names: Names, *, tested: bool = False) -> str:
    """Translate a reference path, such as `$.order.lines[0]` or `$$.Map.Item.Index`; `tested` is one that may lead
    nowhere."""
    for prefix, text in _CONTEXT.items():
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            _note_id(text, names)
            return _steps(text, path[len(prefix) :], path, tested)
    if path == "$$.State.Name":
        return quoted(names.state)
    if path.startswith("$$"):
        raise UntranslatableError(f"`{path[:80]}` has no counterpart")
    if not path.startswith("$"):
        raise UntranslatableError(f"`{path[:80]}` is not a path")
    return _steps(names.input, path[1:], path, tested)


def _note_id(text: str, names: Names) -> None:
    if text == "$execution.id":
        names.notes.append(_IDS)


def _steps(base: str, rest: str, path: str, tested: bool) -> str:
    """Translate the steps of a path; behind `[*]` or a slice they are taken in each element that has them."""
    matches = _matches(rest, path)
    text = base
    for at, match in enumerate(matches):
        if match[5] is not None or match[4] is not None:
            if match[4] is not None:
                found = f"([] + {text})[{match[4]}]"
            else:
                found = f'({text} if type({text}) == "array" else values({text}))'
            return _behind(found, matches[at + 1 :], path)
        text = _step(text, match, tested=tested)
    return text


def _matches(rest: str, path: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise UntranslatableError(f"the path `{path[:80]}` has no counterpart")
        found.append(match)
        at = match.end()
    return found


def _step(base: str, match: re.Match[str], *, tested: bool = False) -> str:
    """Return a step of a path; if it is only tested, an index of what is not a list is missing rather than an error."""
    if match[3] is not None and tested:
        return f'first([part for part in [{base}] if type(part) == "array"])[{match[3]}]'
    if match[3] is not None:
        return f"([] + {base})[{match[3]}]"
    return member(base, match[1] if match[1] is not None else match[2].replace("\\'", "'"))


def _behind(found: str, matches: list[re.Match[str]], path: str) -> str:
    """Return the list of what is at the end of a path in each element of a list."""
    if not matches:
        return found
    inner = "each"
    for match in matches:
        if match[4] is not None or match[5] is not None:
            raise UntranslatableError(f"the path `{path[:80]}` has no counterpart")
        inner = _step(inner, match, tested=True)
    return f"[{inner} for each in {found} if exists({inner})]"


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


def expression(text: str, names: Names) -> str:
    """Translate a path or an intrinsic function."""
    return _evaluated(text.strip(), names, 0).text


class Argument(msgspec.Struct, frozen=True):
    """An argument of an intrinsic function: its expression, and its value where it is a constant."""

    text: str
    kind: str = ""  # "text", "number", "boolean", "null", "list", "object" or unknown
    constant: str | None = None
    plain: bool = False  # whether the text is a reference, which may be repeated

    def is_negative(self) -> bool:
        return self.constant is not None and self.constant.startswith("-")

    def array(self) -> str:
        """Return an expression that fails if the argument is not an array."""
        return self.text if self.kind == "list" else f"[] + {self.text}"


def _evaluated(text: str, names: Names, depth: int) -> Argument:
    if len(text) > MAX_SOURCE_CHARS:
        raise UntranslatableError(f"the expression is longer than {MAX_SOURCE_CHARS:,} characters")
    if depth > MAX_DEPTH:
        raise UntranslatableError(f"the expression is nested deeper than {MAX_DEPTH} levels")
    call = re.fullmatch(r"States\.(\w+)\((.*)\)", text, re.DOTALL)
    if call is None:
        found = path_text(text, names)
        return Argument(found, plain=found.startswith("$"))
    intrinsic = _INTRINSICS.get(call[1])
    if intrinsic is None:
        raise UntranslatableError(f"`States.{call[1]}` has no counterpart")
    arguments = [_argument(each.strip(), names, depth) for each in _split(call[2])]
    apply, kind = intrinsic
    return Argument(apply(arguments, names), kind)


def _argument(text: str, names: Names, depth: int) -> Argument:
    if text.startswith("'"):
        if not re.fullmatch(r"'(?:[^'\\]|\\.)*'", text, re.DOTALL):
            raise UntranslatableError(f"the text `{text[:40]}` has no counterpart")
        plain = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        return Argument(quoted(plain), "text", text[1:-1])
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return Argument(text, "number", text)
    if text in ("true", "false", "null"):
        return Argument(text, "null" if text == "null" else "boolean", text)
    return _evaluated(text, names, depth + 1)


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


_Intrinsic = Callable[[list[Argument], Names], str]


def _format(arguments: list[Argument], names: Names) -> str:
    if not arguments or arguments[0].kind != "text" or arguments[0].constant is None:
        raise UntranslatableError("`States.Format` needs a text with `{}`")
    pieces = _pieces(arguments[0].constant)
    if len(pieces) != len(arguments):
        raise UntranslatableError("`States.Format` has another number of arguments than `{}`")
    found = [quoted(pieces[0])] if pieces[0] else []
    for piece, argument in zip(pieces[1:], arguments[1:], strict=True):
        if argument.kind in ("", "list", "object"):
            names.notes.append(_STRUCTURES)
        written = _written(argument)
        found += [written, *([quoted(piece)] if piece else [])]
    return " + ".join(found) or '""'


def _written(argument: Argument) -> str:
    """Return an argument as text: null is `null`, a text itself, anything else is JSON."""
    if argument.kind == "text":
        return argument.text
    if argument.constant is not None:
        return quoted(argument.constant)
    if argument.kind:
        return f"str({argument.text})"
    if argument.plain:
        return f'(str({argument.text}) if {argument.text} != null else "null")'
    return f'[str(value) if value != null else "null" for value in [{argument.text}]][0]'


def _pieces(text: str) -> list[str]:
    """Split a format at `{}`; a backslash makes the next character plain."""
    pieces = [""]
    for part in re.findall(r"\{\}|\\.|.", text, re.DOTALL):
        if part == "{}":
            pieces.append("")
        else:
            pieces[-1] += part[-1]
    return pieces


def _calls(pattern: str, count: int) -> _Intrinsic:
    def apply(arguments: list[Argument], names: Names) -> str:
        _counted(arguments, count)
        return pattern.format(*(each.text for each in arguments))

    return apply


def _array_calls(pattern: str, count: int) -> _Intrinsic:
    """Return a translation of a function whose first argument must be an array."""

    def apply(arguments: list[Argument], names: Names) -> str:
        _counted(arguments, count)
        return pattern.format(arguments[0].array(), *(each.text for each in arguments[1:]))

    return apply


def _counted(arguments: list[Argument], count: int) -> None:
    if len(arguments) != count:
        raise UntranslatableError(f"{count} arguments expected, found {len(arguments)}")


def _whole(argument: Argument, names: Names) -> str:
    """Return an argument that is rounded to a whole number."""
    if argument.kind not in ("", "number") or "." in (argument.constant or ""):
        raise UntranslatableError(f"`{argument.text[:40]}` is not a whole number")
    if not argument.kind:
        names.notes.append(_HALVES)
        return f"round({argument.text})"
    return argument.text


def _add(arguments: list[Argument], names: Names) -> str:
    _counted(arguments, 2)
    return f"({' + '.join(_whole(each, names) for each in arguments)})"


def _range(arguments: list[Argument], names: Names) -> str:
    _counted(arguments, 3)
    start, end, step = (_whole(each, names) for each in arguments)
    if arguments[2].constant is None:
        return f"[range({start}, {end} + (1 if value > 0 else -1), value) for value in [{step}]][0]"
    if not int(step):
        raise UntranslatableError("a range in steps of 0 has no counterpart")
    return f"range({start}, {end} {'-' if arguments[2].is_negative() else '+'} 1, {step})"


def _item(arguments: list[Argument], names: Names) -> str:
    _counted(arguments, 2)
    if arguments[1].is_negative():
        raise UntranslatableError("an item at a negative index has no counterpart")
    if arguments[1].constant is None:
        names.notes.append(_FROM_END)
    return f"({arguments[0].array()})[{arguments[1].text}]"


def _parts(arguments: list[Argument], names: Names) -> str:
    """Return the parts between separators, each of which is one character; empty parts are left out."""
    _counted(arguments, 2)
    if arguments[1].kind != "text" or not arguments[1].constant:
        raise UntranslatableError("`States.StringSplit` needs its separators as a text")
    characters = re.sub(r"\\(.)", r"\1", arguments[1].constant or "", flags=re.DOTALL)
    written = [
        re.escape(each) if each.isprintable() else f"\\x{{{ord(each):x}}}"
        for each in dict.fromkeys(characters)
    ]
    pattern = f"[^{''.join(written)}]+"
    return f"find_all({arguments[0].text}, {quoted(pattern)})"


def _hash(arguments: list[Argument], names: Names) -> str:
    if len(arguments) != 2 or arguments[1].text != '"SHA-256"':
        raise UntranslatableError("only the hash `SHA-256` has a counterpart")
    if not arguments[0].kind:
        names.notes.append(_TEXTS_ONLY)
    return f"sha256({arguments[0].text})"


def _merge(arguments: list[Argument], names: Names) -> str:
    if len(arguments) != 3 or arguments[2].text != "false":
        raise UntranslatableError("a deep merge has no counterpart")
    return f"merge({arguments[0].text}, {arguments[1].text})"


_INTRINSICS: Mapping[str, tuple[_Intrinsic, str]] = {
    "Format": (_format, "text"),
    "StringToJson": (_calls("parse_json({})", 1), ""),
    "JsonToString": (_calls("json({})", 1), "text"),
    "Array": (lambda arguments, names: f"[{', '.join(each.text for each in arguments)}]", "list"),
    "ArrayLength": (_array_calls("len({})", 1), "number"),
    "ArrayContains": (_array_calls("({} contains {})", 2), "boolean"),
    "ArrayGetItem": (_item, ""),
    "ArrayUnique": (_array_calls("unique({})", 1), "list"),
    "ArrayRange": (_range, "list"),
    "MathAdd": (_add, "number"),
    "Base64Encode": (_calls("base64({})", 1), "text"),
    "Base64Decode": (_calls("from_base64({})", 1), "text"),
    "StringSplit": (_parts, "list"),
    "UUID": (_calls("uuid()", 0), "text"),
    "Hash": (_hash, "text"),
    "JsonMerge": (_merge, "object"),
}


# JSONata


class _JsonataScope:
    def __init__(self, names: Names) -> None:
        self._names = names

    def resolve(self, steps: list[str]) -> tuple[str, int, str]:
        first = steps[0] if steps else ""
        if first == "input":
            return self._names.input, 1, ""
        if first == "result" and self._names.result:
            return self._names.result, 1, "object" if self._names.is_shaped else ""
        if first == "context":
            path = "$$" + "".join(f".{each}" for each in steps[1:4])
            for size in (4, 3):
                prefix = ".".join(path.split(".")[:size])
                if prefix in _CONTEXT:
                    _note_id(_CONTEXT[prefix], self._names)
                    return _CONTEXT[prefix], len(prefix.split(".")), ""
            if path == "$$.State.Name":
                return quoted(self._names.state), 3, "text"
        raise UntranslatableError(f"`$states.{first}` has no counterpart here")


def jsonata(text: str, names: Names) -> str:
    """Translate the inside of `{% %}`."""
    found = translate_jsonata(text, _JsonataScope(names))
    names.notes.extend(found.notes)
    return found.text


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


def condition_of(rule: dict[str, Any], names: Names) -> str:
    """Return the expression of a rule."""
    if not names.jsonata:
        return _rule(rule, names, 0)
    text = rule.get("Condition")
    inner = re.fullmatch(r"\s*\{%(.*)%\}\s*", text, re.DOTALL) if isinstance(text, str) else None
    if inner is None:
        if isinstance(text, bool):
            return quoted(text)
        raise UntranslatableError("the condition is not an expression")
    found = translate_jsonata(inner[1], _JsonataScope(names))
    names.notes.extend(found.notes)
    if found.kind == "boolean":
        return found.text
    names.notes.append(_BOOLEANS)
    return f"({found.text}) == true"


def _rule(rule: dict[str, Any], names: Names, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise UntranslatableError(f"the rule is nested deeper than {MAX_DEPTH} levels")
    for key, word in (("And", " and "), ("Or", " or ")):
        if key in rule:
            parts = [f"({_rule(mapping(each), names, depth + 1)})" for each in sequence(rule[key])]
            if not parts:
                raise UntranslatableError(f"`{key}` has no rules")
            return word.join(parts)
    if "Not" in rule:
        return f"not ({_rule(mapping(rule['Not']), names, depth + 1)})"
    variable = path_text(str(rule.get("Variable")), names, tested="IsPresent" in rule)
    for key, value in rule.items():
        if key in _TESTS:
            text = _TESTS[key].format(variable)
            return text if value is True else f"not ({text})"
        if key == "IsTimestamp":
            names.notes.append(_EXISTING)
            return _is_time(variable) if value is True else f"not ({_is_time(variable)})"
        if key == "StringMatches" and isinstance(value, str):
            return f'type({variable}) == "string" and matches({variable}, {quoted(_pattern(value))})'
        found = _COMPARISON.fullmatch(key)
        if found is not None:
            other = path_text(str(value), names) if found[3] else quoted(value)
            return _comparison(found, variable, other, value, names)
    raise UntranslatableError("the rule compares nothing that has a counterpart")


def _comparison(found: re.Match[str], variable: str, other: str, value: Any, names: Names) -> str:
    """Return the expression of a comparison; values of another type make it false."""
    order = _ORDER[found[2]]
    if found[1] == "Timestamp":
        if not found[3] and not (isinstance(value, str) and re.match(_TIME, value)):
            raise UntranslatableError(f"`{str(value)[:40]}` is not a timestamp")
        names.notes.append(_TIMES)
        guards = [_is_time(variable), *([_is_time(other)] if found[3] else [])]
        sides = [f'format_date({each}, "%F %T.%f")' for each in (variable, other)]
    else:
        if not found[3] and not _has_type(value, found[1]):
            raise UntranslatableError(f"`{str(value)[:40]}` cannot be compared by `{found[0]}`")
        kind = _TYPES[found[1]]
        guards = [f'type({each}) == "{kind}"' for each in (variable, *([other] if found[3] else []))]
        sides = [variable, other]
    return f"{' and '.join(guards)} and {sides[0]} {order} {sides[1]}"


def _has_type(value: Any, kind: str) -> bool:
    if kind == "Boolean":
        return isinstance(value, bool)
    if kind == "Numeric":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def _is_time(text: str) -> str:
    return f'type({text}) == "string" and matches({text}, {quoted(_TIME)})'


def _pattern(text: str) -> str:
    """Write a text with wildcards as a pattern; `\\*` is an asterisk."""
    parts = re.split(r"(\\[*\\]|\*)", text)
    written = [".*" if each == "*" else re.escape(each[1:] if each[:1] == "\\" else each) for each in parts]
    return "(?s)^" + "".join(written) + "$"
