"""Two texts are the same value if expressions have them equal."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rune.codec.same_value import same_value, value_digest
from rune.core.expr import json_equal

# Few different leaves, so that two trees are often equal or nearly so.
LEAVES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        0.0,
        -0.0,
        1.0,
        1.5,
        "",
        "1",
        "ä",
        2**53 + 1,
        2.0**53,
        2**64 - 1,
        2.0**64,
        1e300,
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ä"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_texts_are_the_same_value_if_expressions_have_them_equal(one: Any, other: Any) -> None:
    assert same_value(json.dumps(one).encode(), json.dumps(other).encode()) == json_equal(one, other)


def _reversed(value: Any) -> Any:
    if isinstance(value, list):
        return [_reversed(each) for each in value]
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return float(value) if type(value) is int and value == float(value) else value


@given(VALUES)
def test_no_way_of_writing_a_value_changes_it(value: Any) -> None:
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    written = json.dumps(_reversed(value), indent=2).encode()
    assert same_value(compact, written)
    assert value_digest(compact) == value_digest(b"\xef\xbb\xbf" + written)
