"""Find the line and column of problems in the text of a document, JSON or YAML.

A text is scanned for positions only if it has a problem.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from rune.core.definition import problems as codes
from rune.core.definition.parser import SYNONYMS, SourceText
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import join
from rune.core.limits import LIMITS

Position = tuple[int, int]
"""Line and column, counted from 1."""

YAML_SUFFIXES = frozenset({"yaml", "yml"})


class Place(NamedTuple):
    """Where a value begins, and its key if it has one."""

    value: Position
    key: Position | None
    is_container: bool


Places = dict[str, Place]
"""Places by document path."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_OF_KEYS = frozenset(
    {codes.UNKNOWN_FIELD, codes.UNKNOWN_PARAMETER, codes.DUPLICATE_KEY, codes.SECRET_IN_DOCUMENT}
)
_SYNONYMS = {name: other for other, name in SYNONYMS.items()}
_SYNONYM = re.compile(rf"(nodes\[\d+\]\.)({'|'.join(_SYNONYMS)})(?=[.\[]|$)")


def locate(problems: Sequence[Problem], source: SourceText | None) -> tuple[Problem, ...]:
    """Return the problems with line and column, as far as the text tells them."""
    if source is None or len(source.data) > LIMITS.definition_bytes:
        return tuple(problems)
    if all(each.line is not None for each in problems):
        return tuple(problems)
    try:
        text = source.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return tuple(problems)
    places = find_places(text, source.suffix)
    return tuple(_located(each, places) for each in problems)


def find_places(text: str, suffix: str) -> Places:
    """Return where the keys and values of a document are."""
    if suffix in YAML_SUFFIXES:
        from rune.documents.yaml import yaml_places  # noqa: PLC0415 - a slow import that JSON does not need

        return yaml_places(text, LIMITS.json_depth)
    return _json_places(text)


def _located(problem: Problem, places: Places) -> Problem:
    found = _find(problem.path, places) if problem.line is None else None
    if found is None:
        return problem
    place, exact = found
    by_key = problem.code in _OF_KEYS or place.is_container or not exact
    line, column = place.key if by_key and place.key is not None else place.value
    return msgspec.structs.replace(problem, line=line, column=column)


def _find(path: str, places: Places) -> tuple[Place, bool] | None:
    """Return the place of a path, or of the nearest part of the document around it."""
    wanted = path
    while True:
        found = places.get(wanted) or places.get(
            _SYNONYM.sub(lambda match: match[1] + _SYNONYMS[match[2]], wanted)
        )
        if found is not None:
            return found, wanted == path
        if not wanted:
            return None
        wanted = wanted[: max(wanted.rfind("."), wanted.rfind("["), 0)]


class _Level:
    """An open list or object of a JSON text."""

    def __init__(self, path: str, *, is_object: bool) -> None:
        self.path = path
        self.is_object = is_object
        self.count = 0
        self.key: str | None = None
        self.key_at: Position | None = None

    def next_path(self) -> str:
        if not self.is_object:
            return f"{self.path}[{self.count}]"
        return join(self.path, self.key) if self.key is not None else self.path


def _json_places(text: str) -> Places:
    places: Places = {}
    levels: list[_Level] = []
    for token, position in _tokens(text):
        level = levels[-1] if levels else None
        if token in "}]":
            if level is None:
                return places
            levels.pop()
        elif token == ",":
            if level is None:
                return places
            level.count += 1
            level.key = level.key_at = None
        elif token != ":":
            if level is not None and level.is_object and level.key is None:
                level.key, level.key_at = _key(token), position
                continue
            path = "" if level is None else level.next_path()
            opens = token in "{["
            places[path] = Place(position, None if level is None else level.key_at, opens)
            if opens:
                if len(levels) == LIMITS.json_depth:
                    return places  # deeper texts are invalid; their paths would need quadratic memory
                levels.append(_Level(path, is_object=token == "{"))
    return places


def _key(token: str) -> str:
    if "\\" not in token:
        return token.strip('"')
    try:
        return str(json.loads(token))
    except ValueError:
        return token


def _tokens(text: str) -> Iterator[tuple[str, Position]]:
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for match in _TOKEN.finditer(text):
        line = bisect.bisect_right(starts, match.start())
        yield match[0], (line, match.start() - starts[line - 1] + 1)
