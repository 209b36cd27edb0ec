"""Versions that run side by side read each other's data.

`tests/support/previous_version.json` has one sample of every fact, record, row, message, token and command as the
previous version wrote it, and what that version read from it. `python -m tests.chaos.versions` lets the previous
version itself read what today's writes; here that follows from its shape.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.support.previous_version import STORED
from tests.support.samples import difference, read, samples, written

PREVIOUS: dict[str, Any] = json.loads(STORED.read_text())["samples"]
TODAY = written()

ADDED = {"ExecutionLate", "ExecutionLate, minimal"}
"""Samples that the previous version does not have."""


def decoded(data: bytes) -> Any:
    """Return JSON or msgpack as plain data."""
    try:
        return msgspec.json.decode(data)
    except ValueError:
        return msgspec.msgpack.decode(data)


def test_previous_version_wrote_every_sample() -> None:
    assert PREVIOUS.keys() == samples().keys() - ADDED


@pytest.mark.parametrize("name", PREVIOUS)
def test_sample_of_previous_version_is_read(name: str) -> None:
    stored = PREVIOUS[name]
    found = read({name: stored["bytes"]})[name]
    assert difference(stored["read"], found, name) == ""


@pytest.mark.parametrize("name", PREVIOUS)
def test_previous_version_can_read_today(name: str) -> None:
    """Its readers ignore new fields that have a name, and read nothing else than what they wrote themselves."""
    old, new = (decoded(bytes.fromhex(data)) for data in (PREVIOUS[name]["bytes"], TODAY[name]))
    assert difference(old, new, name) == ""


def test_no_sample_was_unreadable_for_its_own_version() -> None:
    errors = [
        name for name, found in read(TODAY).items() if isinstance(found, dict) and found.keys() == {"error"}
    ]
    assert errors == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ""),
        ({"a": 1}, {"b": 1}, ": without ['a']"),
        ({"a": [1]}, {"a": [1, 2]}, ".a: 2 elements instead of 1"),
        ({"a": 1}, {"a": True}, ".a: True instead of 1"),
    ],
)
def test_differences(old: Any, new: Any, expected: str) -> None:
    assert difference(old, new) == expected
