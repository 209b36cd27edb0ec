"""Blob keys map to two plain names, one pair per key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.adapters.blobs.keys import InvalidBlobKeyError, execution_folder, parse_blob_key

PARTS = st.text(st.characters(), min_size=1, max_size=300) | st.text("./\\%+~ax", min_size=1, max_size=12)
KEYS = st.builds(lambda execution, rest: f"{execution.replace('/', '') or 'x'}/{rest}", PARTS, PARTS)


@given(KEYS)
def test_parsed_key_consists_of_plain_names(key: str) -> None:
    for name in parse_blob_key(key):
        assert name
        assert not set(name) & set("/\\.\0")
        assert name.isascii()
        assert len(name) <= 255


@given(KEYS, KEYS)
def test_different_keys_parse_differently(one: str, other: str) -> None:
    assert (parse_blob_key(one) == parse_blob_key(other)) == (one == other)


def test_long_keys_parse_differently() -> None:
    one, other = (f"x/{'node' * 100}@/{number}" for number in range(2))
    assert parse_blob_key(one) != parse_blob_key(other)
    assert parse_blob_key(one).execution == "x"


@pytest.mark.parametrize("key", ["", "x", "x/", "/x", "//", "/etc/passwd"])
def test_invalid_key_is_rejected(key: str) -> None:
    with pytest.raises(InvalidBlobKeyError):
        parse_blob_key(key)


@pytest.mark.parametrize("execution", ["", "/", "x/y", "../x"])
def test_invalid_execution_is_rejected(execution: str) -> None:
    with pytest.raises(InvalidBlobKeyError):
        execution_folder(execution)
