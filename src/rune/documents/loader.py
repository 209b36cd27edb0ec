"""Load workflow documents and start payloads from JSON or YAML, validate them, and find the line and column of
problems.

A text is scanned for positions only if it has a problem.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rune.core.definition import problems as codes
from rune.core.definition.model import Definition
from rune.core.definition.parser import (
    SYNONYMS,
    Parsed,
    SourceText,
    parse_data,
    parse_document,
    unknown_format,
)
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import join, parse_input, text_problems
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import Catalogue
from rune.core.validation.validate import ValidationResult, validate_document
from rune.documents.json_schema import check_schema, check_value, checks_of_one_document
from rune.errors import InvalidDocumentError

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


def load_document(
    source: Path | bytes | str,
    suffix: str | None = None,
    *,
    limits: Limits = LIMITS,
    yaml_seconds: float | None = None,
) -> Parsed:
    """Read a document from a file or from its text. `suffix` is `json`, `yaml` or `yml`; the default is the file's.
    `yaml_seconds` limits the CPU time that YAML may take."""
    name = ""
    if isinstance(source, Path):
        suffix, name = suffix or source.suffix.lstrip("."), str(source)
        try:
            with source.open("rb") as file:
                # One byte above the limit is enough to detect a file that is too large.
                source = file.read(limits.definition_bytes + 1)
        except OSError as error:
            message = f"`{error.filename}` cannot be read: {(error.strerror or str(error)).lower()}"
            return Parsed(None, (Problem("", codes.UNREADABLE, message),))
    suffix = (suffix or "json").lower()
    parsed = _parse(source, suffix, limits, yaml_seconds)
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    text = SourceText(data, suffix, name)
    return replace(parsed, problems=locate(parsed.problems, text), source=text)


def _parse(data: bytes | str, suffix: str, limits: Limits, yaml_seconds: float | None) -> Parsed:
    if suffix in YAML_SUFFIXES:
        from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

        decoded = decode_yaml(
            data, max_bytes=limits.definition_bytes, max_depth=limits.json_depth, max_seconds=yaml_seconds
        )
        return parse_data(decoded, limits=limits)
    if suffix != "json":
        return Parsed(None, (unknown_format(suffix),))
    return parse_document(data, limits=limits)


def check_document(parsed: Parsed, catalogue: Catalogue, *, limits: Limits = LIMITS) -> ValidationResult:
    """Validate a document, including the JSON Schema in `inputs`. Problems have a line if its text is known."""
    with checks_of_one_document():
        result = validate_document(parsed, catalogue, limits, check_schema=check_schema)
    return replace(result, problems=locate(result.problems, parsed.source)) if result.problems else result


def definition_in(verdict: ValidationResult) -> Definition:
    """Return the definition of a valid document; raise InvalidDocumentError with the errors of any other."""
    if not verdict.valid or verdict.definition is None:
        raise InvalidDocumentError(tuple(each for each in verdict.problems if each.severity == "error"))
    return verdict.definition


def input_problems(definition: Definition, data: bytes | str, *, limits: Limits = LIMITS) -> list[Problem]:
    """Return the problems of a start payload, which must be JSON within the limits that matches `inputs`."""
    if definition.inputs is None:
        return list(text_problems(data, limits=limits))
    decoded = parse_input(data, limits=limits)
    if decoded.problems:
        return list(decoded.problems)
    return check_value(definition.inputs, decoded.value)


def check_input(definition: Definition, data: bytes | str) -> None:
    """Raise InvalidDocumentError with all problems of a start payload, if it has any."""
    problems = input_problems(definition, data)
    if problems:
        raise InvalidDocumentError(tuple(problems))
