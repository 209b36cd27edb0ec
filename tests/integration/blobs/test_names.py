"""Whatever a key says, its place is two plain names, and no other key has the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.adapters.blobs.keys import InvalidBlobKeyError, execution_folder, parse_blob_key

PARTS = st.text(st.characters(), min_size=1, max_size=300) | st.text("./\\%+~ax", min_size=1, max_size=12)
KEYS = st.builds(lambda execution, rest: f"{execution.replace('/', '') or 'x'}/{rest}", PARTS, PARTS)


@given(KEYS)
def test_a_place_leads_nowhere_else(key: str) -> None:
    for name in parse_blob_key(key):
        assert name
        assert not set(name) & set("/\\.\0")
        assert name.isascii()
        assert len(name) <= 255


@given(KEYS, KEYS)
def test_different_keys_have_different_places(one: str, other: str) -> None:
    assert (parse_blob_key(one) == parse_blob_key(other)) == (one == other)


def test_long_keys_have_places_of_their_own() -> None:
    one, other = (f"x/{'node' * 100}@/{number}" for number in range(2))
    assert parse_blob_key(one) != parse_blob_key(other)
    assert parse_blob_key(one).execution == "x"


@pytest.mark.parametrize("key", ["", "x", "x/", "/x", "//", "/etc/passwd"])
def test_what_names_no_blob_is_refused(key: str) -> None:
    with pytest.raises(InvalidBlobKeyError):
        parse_blob_key(key)


@pytest.mark.parametrize("execution", ["", "/", "x/y", "../x"])
def test_what_names_no_execution_is_refused(execution: str) -> None:
    with pytest.raises(InvalidBlobKeyError):
        execution_folder(execution)
