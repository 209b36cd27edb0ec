"""Decode YAML to plain data: the core schema of YAML 1.2, without anchors, aliases and tags.

It also writes definitions as YAML that is decoded to the same content.
"""

from __future__ import annotations

import contextlib
import io
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.representer import SafeRepresenter

from rune.core.definition import problems
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import (
    Decoded,
    has_lone_surrogate,
    join,
    lone_surrogate,
    not_text,
    rejected_number,
)
from rune.documents.loader import Place, Places, Position

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}\Z")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,22}\Z|0x[0-9a-fA-F]{1,16}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_INDENTATION = "indent the entries of one list or object by the same number of spaces"
_SYNTAX_HINTS = {
    "expected <block end>": _INDENTATION,
    "mapping values are not allowed": f"{_INDENTATION}, and put text that contains `: ` in quotes",
    "'\\t'": "indent with spaces, not with tabs",
    "could not find expected ':'": "put a space after the colon of each key, and text of several lines in quotes",
    "expected ',' or": "close each `{` with `}` and each `[` with `]`, and separate entries with commas",
}


class _RefusedError(Exception):
    """Raised at the first problem that makes the rest of the document unreadable."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Level:
    """An open list or object, and its path in the document."""

    def __init__(self, value: list[Any] | dict[str, Any], path: str) -> None:
        self.value = value
        self.path = path
        self.key: str | None = None
        self.key_at: Position | None = None

    def next_path(self) -> str:
        if isinstance(self.value, list):
            return f"{self.path}[{len(self.value)}]"
        return join(self.path, self.key) if self.key is not None else self.path


def decode_yaml(
    data: bytes | str,
    *,
    max_bytes: int,
    max_depth: int,
    max_seconds: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Decoded:
    """Read one YAML document. `max_seconds` limits the CPU time of this thread that it may take; `on_event` is called
    with each event of the parser that the document may have."""
    size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        return Decoded(
            None, (Problem("", problems.TOO_LARGE, f"{size:,} bytes, at most {max_bytes:,} are allowed"),)
        )
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        return Decoded(None, (not_text(error.object, error),))
    reader = _Reader(max_depth)
    until = None if max_seconds is None else time.thread_time() + max_seconds
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if until is not None and time.thread_time() > until:
                message = f"reading it as YAML takes longer than {max_seconds:g} s"
                return Decoded(None, (_at(event, Problem("", problems.TOO_LARGE, message, "send JSON")),))
            reader.add_event(event)
            if on_event is not None:
                on_event(event)
    except _RefusedError as refusal:
        return Decoded(None, (*reader.problems, refusal.problem))
    except (YAMLError, ValueError, RecursionError) as error:
        return Decoded(None, (*reader.problems, _syntax_problem(error)))
    return Decoded(reader.value, tuple(reader.problems))


def yaml_places(text: str, max_depth: int) -> Places:
    """Return where the keys and values of a YAML document are, as far as it can be read."""
    reader = _Reader(max_depth)
    with contextlib.suppress(_RefusedError, YAMLError, ValueError, RecursionError):
        for event in YAML(typ="safe", pure=True).parse(text):
            reader.add_event(event)
    return reader.places


def _syntax_problem(error: Exception) -> Problem:
    reason = getattr(error, "problem", None) or str(error).split("\n", maxsplit=1)[0]
    problem = Problem("", problems.NOT_YAML, f"not YAML: {reason}", _syntax_hint(str(reason)))
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        line, column = error.problem_mark.line + 1, error.problem_mark.column + 1
        return msgspec.structs.replace(problem, line=line, column=column)
    return problem


def _syntax_hint(reason: str) -> str:
    """Return what to change for the errors of the parser that name its tokens instead of the mistake."""
    return next((hint for part, hint in _SYNTAX_HINTS.items() if part in reason), "")


class _Reader:
    """Builds the value from parser events, so that ruamel constructs no objects from tags."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._levels: list[_Level] = []
        self._documents = 0
        self.value: Any = None
        self.problems: list[Problem] = []
        self.places: Places = {}

    def add_event(self, event: Event) -> None:
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._refusal(
                    event, problems.NOT_YAML, "a file holds one document", "remove what follows `---`"
                )
            return
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._refusal(
                event, problems.ALIAS_REFUSED, "anchors and aliases are not supported", "write the value out"
            )
        if isinstance(event, SequenceEndEvent | MappingEndEvent):
            self._levels.pop()
            return
        if isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent):
            if event.ctag is not None and str(event.ctag) not in {"", "!", "None"}:
                raise self._refusal(
                    event, problems.TAG_REFUSED, f"the tag `{event.ctag}` is not supported", "remove it"
                )
            self._read_node(event)

    def _read_node(self, event: ScalarEvent | SequenceStartEvent | MappingStartEvent) -> None:
        level = self._levels[-1] if self._levels else None
        if level is not None and isinstance(level.value, dict) and level.key is None:
            self._read_key(event, level)
            return
        path = level.next_path() if level is not None else ""
        value: Any = self._read_scalar(event, path) if isinstance(event, ScalarEvent) else None
        if not isinstance(event, ScalarEvent):
            value = [] if isinstance(event, SequenceStartEvent) else {}
        self.places[path] = Place(
            _position(event), level.key_at if level is not None else None, not isinstance(event, ScalarEvent)
        )
        self._store(level, value)
        if not isinstance(event, ScalarEvent):
            self._levels.append(_Level(value, path))
            if len(self._levels) > self._max_depth:
                raise _RefusedError(
                    _at(event, Problem("", problems.TOO_DEEP, f"nested deeper than {self._max_depth} levels"))
                )

    def _read_key(self, event: Event, level: _Level) -> None:
        if not isinstance(event, ScalarEvent):
            raise self._refusal(event, problems.WRONG_TYPE, "a key must be text", "")
        level.key, level.key_at = event.value, _position(event)
        if has_lone_surrogate(event.value):
            self.problems.append(lone_surrogate(level.path))
        if event.value in level.value:
            message = f"the key `{event.value}` appears twice"
            problem = Problem(level.next_path(), problems.DUPLICATE_KEY, message, "keep one")
            self.problems.append(_at(event, problem))

    def _store(self, level: _Level | None, value: Any) -> None:
        if level is None:
            self.value = value
        elif isinstance(level.value, list):
            level.value.append(value)
        else:
            assert level.key is not None
            level.value[level.key] = value
            level.key = level.key_at = None

    def _read_scalar(self, event: ScalarEvent, path: str) -> Any:
        text: str = event.value
        if has_lone_surrogate(text):
            self.problems.append(lone_surrogate(path))
        if event.style not in {None, ""}:
            return text
        value = plain_scalar(text)
        if not isinstance(value, str):
            return value
        if is_unstorable_number(text):
            shown = text if len(text) <= 30 else text[:27] + "…"
            hint = "write it as text in quotes, or as a number within 64 bits"
            self.problems.append(
                Problem(path, problems.BAD_NUMBER, f"`{shown}` is not a number that can be stored", hint)
            )
            return _unstorable_number(text)
        return text

    def _refusal(self, event: Event, code: str, message: str, hint: str) -> _RefusedError:
        path = self._levels[-1].next_path() if self._levels else ""
        return _RefusedError(_at(event, Problem(path, code, message, hint)))


def plain_scalar(text: str) -> Any:
    """Return the value that a plain scalar denotes."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    number = _parse_number(text)
    return text if number is None else number


def is_unstorable_number(text: str) -> bool:
    """Return whether a plain scalar denotes a number that cannot be stored."""
    return any(each.match(text) for each in (_NOT_FINITE, _FLOAT, _OCTAL_OR_HEX))


def _parse_number(text: str) -> int | float | None:
    """Return the number that a plain scalar denotes, within 64 bits; None for anything else."""
    if _OCTAL_OR_HEX.match(text):
        whole = int(text[2:], 8 if text[1] == "o" else 16)
    elif _INTEGER.match(text):
        whole = int(text)
    else:
        real = float(text) if _FLOAT.match(text) and not text.lstrip("+-").isdigit() else float("inf")
        return real if abs(real) != float("inf") else None
    return whole if -(2**63) <= whole < 2**64 else None


def _unstorable_number(text: str) -> int | float:
    if _OCTAL_OR_HEX.match(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    return rejected_number(text.replace(".", "", 1) if _NOT_FINITE.match(text) else text)


def _position(event: Event) -> Position:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _at(event: Event, problem: Problem) -> Problem:
    line, column = _position(event)
    return msgspec.structs.replace(problem, line=line, column=column)


_FIRST = ("id", "src", "dst", "type", "name", "inputs", "settings", "nodes", "edges")

_STYLE = {
    "default_flow_style": False,
    "allow_unicode": True,
    "width": 1_000_000,
    "sort_base_mapping_type_on_output": False,
}


class _PlainRepresenter(SafeRepresenter):
    """Writes no anchors, which Rune does not read, and multi-line strings as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        style = None
        if not data.isprintable():
            style = "|" if all(map(_is_plain_line, data.removesuffix("\n").split("\n"))) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


def _is_plain_line(text: str) -> bool:
    """Return whether a line of a block is read back unchanged."""
    return text.isprintable() and text == text.rstrip()


_PlainRepresenter.add_representer(str, _PlainRepresenter.represent_str)


def to_yaml(definition: dict[str, Any]) -> str:
    """Return a definition as YAML, the identifying fields first."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _PlainRepresenter
    vars(yaml).update(_STYLE)
    text = io.StringIO()
    yaml.dump(_reorder(definition), text)
    return text.getvalue()


def _reorder(thing: Any) -> Any:
    """Move identifying fields to the front; parameters keep their order."""
    first = {key: thing[key] for key in _FIRST if key in thing}
    for key in ("nodes", "edges"):
        if key in first:
            first[key] = [_reorder(each) for each in first[key]]
    return first | thing | first
