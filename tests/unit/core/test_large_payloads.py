"""Large payloads are checked as text: with the verdicts of the decoder, and without building their value."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.strict_json import (
    MAX_DECODED_BYTES,
    check_json,
    decode_json,
    parse_input,
    split_object,
    text_problems,
)
from rune.core.limits import Limits

DEPTH = 6
NUMBERS = (
    b"0", b"-1", b"1.5", b"1e5", b"1e400", b"-1E+400", b"1e-400", b"1.5E+308", b"1.8E308", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551615", b"18446744073709551616", b"0.12345678901234567890",
    b"12345678901234567890.5", b"1234567890123456789", b"1" + b"0" * 400, b"1" + b"0" * 400 + b".5",
)  # fmt: skip
TEXTS = (
    b'""', b'"a"', b'"\\""', b'"\\\\"', b'"{"', b'"}]"', b'"1e400"', b'"18446744073709551616"', b'"\\ud83d\\ude00"',
    b'"\\\\ud83d"', '"é"'.encode(),
)  # fmt: skip
BAD = (
    b"00",
    b"1.",
    b"nul",
    b"-",
    b'"\\x"',
    b'"\x01"',
    b'"\\ud83d"',
    b'"\\ude00"',
    b"[1,]",
    b'{"a"}',
    b"",
    b'"\xff"',
)
KEYS = (b'"a"', b'"\\u0061"', b'"b"', b'"c\\""', b'"1e400"', b'"{"', b'"d"')

values = st.sampled_from((*NUMBERS, *TEXTS, b"null", b"true"))
spaces = st.sampled_from((b"", b" ", b"\n"))
texts = st.recursive(
    st.one_of(values, values, values, st.sampled_from(BAD)),
    lambda inner: st.one_of(
        st.tuples(spaces, st.lists(inner, max_size=4)).map(
            lambda each: b"[" + each[0] + (b"," + each[0]).join(each[1]) + b"]"
        ),
        st.tuples(spaces, st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=3)).map(
            lambda each: (
                b"{" + each[0] + (b"," + each[0]).join(k + each[0] + b":" + v for k, v in each[1]) + b"}"
            )
        ),
    ),
    max_leaves=12,
)


def checked(text: bytes) -> set[str]:
    return {each.code for each in check_json(text, max_depth=DEPTH, max_containers=1_000_000, root="input")}


@given(texts)
def test_text_has_problems_if_the_decoder_finds_some(text: bytes) -> None:
    decoded = {
        each.code for each in decode_json(text, max_bytes=10**6, max_depth=DEPTH, root="input").problems
    }
    assert bool(checked(text)) == bool(decoded)
    assert "NOT_JSON" in checked(text) or "BAD_TEXT" in checked(text) or decoded <= checked(text)


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (b'{"a":1,\n"a":2}', "DUPLICATE_KEY", (2, 1)),
        (b'[{"a":{"b":1,"\\u0062":2}}]', "DUPLICATE_KEY", (1, 14)),
        (b"[1,\n 1e400]", "BAD_NUMBER", (2, 2)),
        (b'{"a":[1,\n\n2}', "NOT_JSON", (3, 2)),
        (b'["\\ud800"]', "BAD_TEXT", (1, 3)),
        (b"[1\xff]", "NOT_TEXT", (1, 3)),
    ],
)
def test_problem_names_line_and_column(text: bytes, code: str, place: tuple[int, int]) -> None:
    (found, *_) = check_json(text, max_depth=100, max_containers=100, root="input")
    assert (found.path, found.code, (found.line, found.column)) == ("input", code, place)


def test_lists_and_objects_of_a_payload_are_limited() -> None:
    limits = Limits(payload_containers=1_000)
    (found,) = text_problems(b"[" + b"[]," * MAX_DECODED_BYTES + b"[]]", limits=limits)
    assert (found.code, "1,000" in found.message) == ("TOO_LARGE", True)


def test_bytes_of_a_payload_are_limited() -> None:
    limits = Limits(payload_bytes=MAX_DECODED_BYTES + 1)
    (found,) = text_problems(b'"' + b"x" * MAX_DECODED_BYTES + b'"', limits=limits)
    assert (found.code, f"{MAX_DECODED_BYTES + 1:,}" in found.message) == ("TOO_LARGE", True)


def test_small_text_has_the_problems_of_the_decoder() -> None:
    assert [each.code for each in text_problems(b"[1,]")] == ["NOT_JSON"]


def test_nesting_is_limited() -> None:
    assert checked(b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1)) == {"TOO_DEEP"}


def test_pair_of_surrogates_is_text() -> None:
    assert checked(b'["\\ud83d\\ude00"]') == set()


def test_repeated_keys_without_long_numbers_are_found() -> None:
    text = b'{"a":{"b":{"c":1}},"rows":[' + b'{"x":"y"},' * 1_000 + b'{"x":1,"x":2}]}'
    assert checked(text) == {"DUPLICATE_KEY"}


@pytest.mark.parametrize("part", [b"[],", b'"",', b'{"a":1},', b"1e5,", b'"\\n",'])
def test_check_takes_little_memory(part: bytes) -> None:
    text = b"[" + part * (1024 * 1024 // len(part)) + b"0]"
    tracemalloc.start()
    try:
        assert text_problems(text) == ()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text)


def test_large_payload_is_decoded_as_a_small_one() -> None:
    value = {"rows": [{"id": each, "name": f"é {each}", "at": each / 7} for each in range(20_000)]}
    text = b"\xef\xbb\xbf" + json.dumps(value).encode()
    assert len(text) > MAX_DECODED_BYTES
    assert parse_input(text).value == value


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'{"a" : [1] , "b":2, "a" : [1]}']
)
def test_member_that_appears_twice_is_refused(text: bytes) -> None:
    assert [each.code for each in split_object(text, "body")[1]] == ["DUPLICATE_KEY"]


def test_object_is_split_into_texts() -> None:
    members, problems = split_object(b'\xef\xbb\xbf { "a" : [1, {"a":2}] ,\n"b":"a" , "c":{}}', "body")
    assert problems == ()
    assert {name: bytes(text) for name, text in members.items()} == {
        "a": b'[1, {"a":2}]',
        "b": b'"a"',
        "c": b"{}",
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [(b"[]", "WRONG_TYPE"), (b'{"a":}', "NOT_JSON"), (b'{"a":' + b"[" * 100_000 + b"}", "TOO_DEEP")],
)
def test_text_that_is_no_object_is_refused(text: bytes, code: str) -> None:
    assert [each.code for each in split_object(text, "body")[1]] == [code]
