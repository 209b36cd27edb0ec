"""Parts of JSON values: pointers, levels, pieces of lists and texts."""

from __future__ import annotations

import msgspec
import pytest

from rune.runtime.queries.value_parts import (
    MAX_SHOWN,
    MAX_UNOPENED_BYTES,
    MEMBER_CHARS,
    InvalidPointerError,
    JsonObject,
    JsonText,
    Member,
    NotJsonError,
    PartNotFoundError,
    part_of,
)

VALUE = {"rows": [{"n": number} for number in range(250)], "a/b": {"~": 1}, "text": "é" * 5_000, "big": 2**63}
DATA = msgspec.json.encode(VALUE)


def shown(part: Member) -> object:
    return msgspec.json.decode(msgspec.json.encode(part))


def test_part_of_object_lists_members_with_types_and_sizes() -> None:
    part = part_of(DATA)
    assert (part.type, part.size, part.bytes, part.next) == ("object", 4, len(DATA), None)
    assert part.entries is not None
    listed = [(each.key, each.type, each.size) for each in part.entries]
    assert listed == [
        ("rows", "array", 250),
        ("a/b", "object", 1),
        ("text", "string", 5_000),
        ("big", "number", None),
    ]
    text = part.entries[2]
    assert (text.value, text.next) == ("é" * MEMBER_CHARS, MEMBER_CHARS)


def test_part_of_array_is_read_in_pieces_without_gap() -> None:
    found: list[object] = []
    offset: int | None = 0
    while offset is not None:
        part = part_of(DATA, "/rows", depth=2, offset=offset, limit=60)
        assert part.entries is not None
        found += [each.entries[0].value for each in part.entries if each.entries]
        offset = part.next
    assert msgspec.json.decode(msgspec.json.encode(found)) == list(range(250))


def test_part_of_text_continues_at_next() -> None:
    first = part_of(DATA, "/text", limit=3_000)
    rest = part_of(DATA, "/text", offset=first.next or 0)
    assert first.value + rest.value == VALUE["text"]
    assert rest.next is None


@pytest.mark.parametrize("pointer", ["/a~1b/~0", "/rows/7/n", "/big"])
def test_part_of_escaped_pointer_is_the_named_value(pointer: str) -> None:
    expected = {"/a~1b/~0": 1, "/rows/7/n": 7, "/big": 2**63}[pointer]
    assert msgspec.json.decode(msgspec.json.encode(part_of(DATA, pointer).value)) == expected


@pytest.mark.parametrize("pointer", ["/nothing", "/rows/250", "/rows/01", "/rows/-", "/text/0"])
def test_part_of_pointer_to_nothing_is_not_found(pointer: str) -> None:
    with pytest.raises(PartNotFoundError):
        part_of(DATA, pointer)


@pytest.mark.parametrize("pointer", ["rows", "/a~b", "/~2"])
def test_part_of_malformed_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(InvalidPointerError):
        part_of(DATA, pointer)


def test_part_of_bytes_that_are_not_json_is_refused() -> None:
    with pytest.raises(NotJsonError):
        part_of(b"\x89PNG")


def test_part_with_many_levels_is_bounded() -> None:
    data = msgspec.json.encode([[[0] * 100] * 100] * 1_000)
    part = part_of(data, depth=3, limit=1_000)

    def count(member: Member) -> int:
        return sum(1 + count(each) for each in member.entries or ())

    assert count(part) == MAX_SHOWN
    assert part.entries is not None
    assert part.entries[-1].entries is None
    assert part.entries[-1].size == 100


def test_part_with_depth_zero_has_no_members() -> None:
    part = part_of(DATA, "/rows", depth=0)
    assert (part.size, part.entries) == (250, None)


def test_large_member_has_no_size_until_it_is_requested() -> None:
    text = JsonText(msgspec.json.encode({"rows": ["x" * 1_000] * 1_100, "count": 1}))
    whole = text.part(depth=2)
    assert whole.entries is not None
    assert [(each.key, each.size, each.entries) for each in whole.entries] == [
        ("rows", None, None),
        ("count", None, None),
    ]
    assert whole.entries[0].bytes > MAX_UNOPENED_BYTES
    assert text.part("/rows").size == 1_100


def test_kept_text_splits_a_large_level_once() -> None:
    text = JsonText(msgspec.json.encode({"a/b": [{"n": number} for number in range(20_000)]}))
    first = text.part("/a~1b", offset=19_000)
    text.data = b"{}"  # a level that is known is not read again
    with pytest.raises(PartNotFoundError):
        text.part("/other")
    assert text.part("/a~1b", offset=19_000) == first


def test_object_of_texts_has_the_parts_of_the_encoded_object() -> None:
    values = {"a/b": {"rows": [{"n": number} for number in range(300)]}, "": "text", "none": None}
    texts = {name: JsonText(msgspec.json.encode(value)) for name, value in values.items()}
    whole, data = JsonObject(texts), msgspec.json.encode(values)
    for pointer in ("", "/a~1b", "/a~1b/rows", "/a~1b/rows/299/n", "/", "/none"):
        for depth in (0, 1, 3):
            assert whole.part(pointer, depth=depth) == part_of(data, pointer, depth=depth)
    assert JsonObject({}).part() == part_of(b"{}")
    with pytest.raises(PartNotFoundError):
        whole.part("/rows")


def test_object_of_texts_splits_no_level_that_its_member_has_split() -> None:
    member = JsonText(msgspec.json.encode({"rows": list(range(20_000))}))
    first = member.part("/rows", offset=19_000)
    member.data = b"{}"
    assert JsonObject({"big": member}).part("/big/rows", offset=19_000).entries == first.entries
