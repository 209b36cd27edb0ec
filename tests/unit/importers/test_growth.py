"""The work of an import grows in proportion to the document, whichever part of it is large.

The rows are all places of the cases, where the same field of another node counts once. The columns are ways to make a
place large: a list or object with many members, and texts of one repeated piece. In part each place is made large in
one or two ways, with RUNE_WHOLE=1 in all.
"""

from __future__ import annotations

import copy
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rune.documents.importers import Import, import_document
from rune.documents.importers.importer import decode_source
from rune.errors import RuneError
from rune.nodes.registry import standard_catalogue
from tests.support.growth import assert_linear
from tests.support.whole import WHOLE
from tests.unit.importers.cases import FORMATS, SOURCES, case_name

pytestmark = pytest.mark.long

CATALOGUE = standard_catalogue()
PIECES = (
    "{{", "}}", "{{ a }} ", "={{", "={{ $json.a }}", "{%", "{% $states.input.a %}", "$.a[", "$.a.b", "$json.a ", "'",
    '"', "/*", "`", "`${", "=`${", "(", "\\", "\n", " ", "not ", " and ", "a, ", "States.Array(", "{}", "1", "=/*",
)  # fmt: skip
MEMBERS, CHARS = 200, 2_000
SHORT_S = 0.1  # of CPU for the larger size: not measured again
PARTS = 3  # of the places, in part; every way is used
Place = tuple[str | int, ...]


def seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def imported(source: Any) -> Import | None:
    """Import a document; None if it is refused with a reason."""
    try:
        return import_document(json.dumps(source), CATALOGUE)
    except RuneError:
        return None


def places(part: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield place, part
    members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, each in members:
        yield from places(each, (*place, key))


def replaced(source: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    source = copy.deepcopy(source)
    at = source
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return source


def many(part: Any, count: int) -> Any:
    """A list or an object with `count` members like those it has, with ids and names of their own."""
    if isinstance(part, dict):
        keys = list(part)
        return part | {f"{keys[at % len(keys)]}_{at}": part[keys[at % len(keys)]] for at in range(count)}
    found: list[Any] = []
    for at in range(count):
        each = copy.copy(part[at % len(part)])
        if isinstance(each, dict) and at >= len(part):
            each |= {key: f"{each[key]}_{at}" for key in ("id", "name") if isinstance(each.get(key), str)}
        found.append(each)
    return found


def kind_of(source: Any, place: Place) -> tuple[Any, ...]:
    """The place without positions and names of states, with the type of the node around it: one row."""
    shown: list[Any] = []
    kind, at = "", source
    for key in place:
        is_state = bool(shown) and shown[-1] == "States"
        shown.append("*" if isinstance(key, int) or is_state else key)
        at = at[key]
        if isinstance(at, dict):
            kind = str(at.get("type") or at.get("Type") or kind)
    return kind, *shown


def rows(format: str) -> list[tuple[str, Any, Place, Any]]:
    """Every place of the cases of a format that holds a text, or members."""
    found: dict[Any, tuple[str, Any, Place, Any]] = {}
    for path in SOURCES:
        if path.parent.name == format:
            source = decode_source(path.read_bytes())
            for place, part in places(source):
                if part and isinstance(part, dict | list | str):
                    found.setdefault(kind_of(source, place), (case_name(path), source, place, part))
    return list(found.values())


def ways(format: str) -> Iterator[tuple[str, Callable[[int], Any], int]]:
    """A row and a column at a time: what is made large, how, and the smaller size."""
    pieces = itertools.cycle(PIECES)
    for at, (case, source, place, part) in enumerate(rows(format)):
        if isinstance(part, str):
            for piece in PIECES if WHOLE else (next(pieces),):
                yield f"{case} {place} {piece!r}", partial(with_text, source, place, piece), CHARS
        elif WHOLE or at % PARTS == 0:
            yield f"{case} {place} many", partial(with_many, source, place, part), MEMBERS


def with_text(source: Any, place: Place, piece: str, size: int) -> Any:
    return replaced(source, place, piece * (size // len(piece)))


def with_many(source: Any, place: Place, part: Any, size: int) -> Any:
    return replaced(source, place, many(part, size))


@pytest.mark.parametrize("format", FORMATS)
def test_work_of_an_import_grows_with_the_size_of_any_part(format: str) -> None:
    slow: list[str] = []
    for name, made, size in ways(format):

        def work(count: int, made: Callable[[int], Any] = made) -> object:
            return imported(made(count))

        if seconds(partial(work, 8 * size)) > SHORT_S:
            try:
                assert_linear(work, size)
            except AssertionError as error:
                slow.append(f"{name}: {error}")

    assert slow == []


def test_braces_of_a_large_text_become_few_expressions() -> None:
    source = {
        "nodes": [{"id": "a", "type": "log", "data": {"message": "{{" * 600_000}}],
        "edges": [],
    }

    found = imported(source)

    assert found is not None
    (node,) = found.document["nodes"]
    assert node["parameters"]["message"].count('{{ "') <= 1_201
    assert found.report.problems == ()


def test_choices_by_the_thousand_are_imported_in_proportion() -> None:
    def machine(choices: int) -> Any:
        rules = [{"Variable": "$.n", "NumericEquals": at, "Next": "Done"} for at in range(choices)]
        return {
            "StartAt": "Which",
            "States": {
                "Which": {"Type": "Choice", "Choices": rules, "Default": "Done"},
                "Done": {"Type": "Pass", "End": True},
            },
        }

    assert_linear(lambda choices: imported(machine(choices)), 300)
    assert imported(machine(5_000)) is not None


@pytest.mark.parametrize("digits", [18, 19, 400, 5_000])
def test_operand_keeps_its_digits_or_is_reported(digits: int) -> None:
    rule = {"value": "$trigger.n", "operator": "==", "compare": "1" * digits}
    switch = {"id": "a", "type": "switch", "data": {"rules": [rule]}}

    found = imported({"nodes": [switch], "edges": []})

    assert found is not None
    (node,) = found.document["nodes"]
    if digits == 18:
        assert node["parameters"]["rules"][0]["compare"] == int("1" * digits)
    else:
        assert [each.status for each in found.report.entries] == ["by_hand"]


@pytest.mark.parametrize("zone", ["=/*" * 2_000, "/" * 5_000, "a/" * 2_000, "\0", "../" * 9])
def test_odd_time_zone_is_reported(zone: str) -> None:
    (source,) = (decode_source(path.read_bytes()) for path in SOURCES if path.stem == "19-schedule")
    source["settings"]["timezone"] = zone

    found = imported(source)

    assert found is not None
    assert any("no time zone" in each.message for each in found.report.problems)
