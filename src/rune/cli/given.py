"""Values given on the command line: payloads, labels."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from rune.core.limits import LIMITS
from rune.core.parse import parse_input
from rune.errors import InvalidDocument, RuneError


def payload_of(given: str, option: str = "--input") -> bytes:
    """The bytes of a payload, JSON or @FILE, read no further than the limit."""
    if not given.startswith("@"):
        return given.encode()
    try:
        with Path(given[1:]).open("rb") as file:
            return file.read(LIMITS.payload_bytes + 1)
    except OSError as error:
        raise RuneError(
            f"{option} {given}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from error


def value_of(given: str, option: str) -> bytes:
    """The same, of a value that must be sound JSON."""
    data = payload_of(given, option)
    problems = parse_input(data).problems
    if problems:
        raise InvalidDocument(tuple(replace(each, path=option) for each in problems))
    return data


def labels_of(given: tuple[str, ...]) -> dict[str, str]:
    """Labels, each written name=value."""
    labels: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise RuneError(f"--label {each}: a label is written name=value", code="BAD_LABEL")
        labels[name] = value
    return labels
