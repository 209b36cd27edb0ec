"""Search inside JSON values: keys, texts, escapes, pages and bounds."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from rune.runtime.queries.value_parts import (
    EXCERPT_CHARS,
    MAX_MATCHES,
    JsonObject,
    JsonText,
    Match,
    NotJsonError,
    PartNotFoundError,
    find_in,
)

VALUE = {
    "rows": [{"id": number, "Name": f"Row É {number}"} for number in range(50)],
    "a/b": {"note": 'line\none "quoted"', "path": "C:\\temp", "big": 12345678901234567890},
}
TEXT = JsonText(msgspec.json.encode(VALUE))


def test_find_in_texts_and_keys_ignores_case_and_keeps_the_order() -> None:
    assert find_in(TEXT, "row é 4", limit=2).matches == [
        Match("/rows/4/Name", "value", "Row É 4", 0),
        Match("/rows/40/Name", "value", "Row É 40", 0),
    ]
    assert find_in(TEXT, "row é 4").count == 11
    assert find_in(TEXT, "NAME", limit=1).matches == [Match("/rows/0/Name", "key", "Name", 0)]
    assert find_in(TEXT, "345678").matches == [Match("/a~1b/big", "value", "12345678901234567890", 2)]
    assert find_in(TEXT, "nothing like it").matches == []


@pytest.mark.parametrize("wanted", ['one "q', "ne\no", "C:\\t"])
def test_find_of_text_that_json_escapes_finds_it(wanted: str) -> None:
    assert [each.pointer for each in find_in(TEXT, wanted).matches] in (["/a~1b/note"], ["/a~1b/path"])


def test_find_of_text_in_unicode_escapes_finds_it() -> None:
    text = JsonText(rb'{"k": "\u0041\u00e9\ud83d\ude00\/"}')
    assert find_in(text, "aÉ😀/").matches == [Match("/k", "value", "Aé😀/", 0)]


def test_find_below_a_pointer_leaves_out_the_rest() -> None:
    found = find_in(TEXT, "row", "/rows/7")
    assert [each.pointer for each in found.matches] == ["/rows/7/Name"]
    with pytest.raises(PartNotFoundError):
        find_in(TEXT, "row", "/missing")


def test_find_in_pages_returns_each_match_once() -> None:
    pages = [find_in(TEXT, "row", offset=at, limit=20).matches for at in (0, 20, 40)]
    assert [len(each) for each in pages] == [20, 20, 11]
    assert len({match for page in pages for match in page}) == 51


def test_match_in_a_long_text_shows_what_is_around_it() -> None:
    (found,) = find_in(JsonText(msgspec.json.encode("x" * 9_000 + "needle" + "y" * 9_000)), "needle").matches
    assert found.text == "x" * EXCERPT_CHARS + "needle" + "y" * EXCERPT_CHARS
    assert found.text[found.start :].startswith("needle")


def test_search_with_too_many_matches_ends_and_says_so() -> None:
    found = find_in(JsonText(msgspec.json.encode(["same"] * (MAX_MATCHES + 5))), "same", limit=1)
    assert (found.count, found.complete) == (MAX_MATCHES, False)


def test_search_that_takes_too_long_ends_and_says_so() -> None:
    ticks = count()
    found = find_in(
        JsonText(msgspec.json.encode(["same"] * 2_000)), "same", max_s=3, clock=lambda: next(ticks)
    )
    assert 0 < found.count < 2_000
    assert not found.complete


def test_search_in_bytes_that_are_not_json_is_refused() -> None:
    with pytest.raises(NotJsonError):
        find_in(JsonText(b"\x89PNG"), "x")


def test_search_in_object_of_texts_finds_names_and_values_of_its_members() -> None:
    whole = JsonObject({"big": TEXT, "none": JsonText(b"null")})
    inside = [(f"/big{each.pointer}", each.text) for each in find_in(TEXT, "a").matches]
    assert [(each.pointer, each.text) for each in find_in(whole, "a").matches] == inside
    assert [each.pointer for each in find_in(whole, "NONE").matches] == ["/none"]
