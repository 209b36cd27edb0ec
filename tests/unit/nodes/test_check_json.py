"""`check_json` accepts JSON values within limits only."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.limits import LIMITS
from rune.errors import LimitExceededError, NodeFailure
from rune.nodes.base import check_json

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def nested_in_containers(value: Any) -> list[Any]:
    return [value, [value], {"a": value}, {"a": [1, {"b": [value, 2]}]}]


@given(JSON)
def test_json_value_is_accepted(value: Any) -> None:
    check_json(value)
    assert json.loads(msgspec.json.encode(value)) == value


@pytest.mark.parametrize("value", [-(2**63), 2**64 - 1])
def test_integer_of_64_bits_is_accepted(value: int) -> None:
    for each in nested_in_containers(value):
        check_json(each)


@pytest.mark.parametrize(
    ("value", "bits"), [(-(2**63) - 1, 65), (2**64, 65), (10**30, 100), (-(10**30), 101)]
)
def test_longer_integer_is_rejected_with_the_limit(value: int, bits: int) -> None:
    for each in nested_in_containers(value):
        with pytest.raises(LimitExceededError) as found:
            check_json(each)
        assert found.value.message == f"bits of an integer in the output: at most 64 allowed, found {bits}"


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        (1, 2),
        {1, 2},
        b"bytes",
        object(),
        decimal.Decimal(1),
        datetime.date(2024, 1, 1),
        {1: "a"},
        {None: "a"},
        {("a", "b"): 1},
        "half \ud800",
        {"\udfff": 1},
    ],
)
def test_h_c5_non_json_value_is_rejected(value: Any) -> None:
    # Red if only the encoder is used: it writes NaN as null.
    for each in nested_in_containers(value):
        with pytest.raises(NodeFailure) as found:
            check_json(each)
        assert found.value.code == "NOT_JSON"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_over_limit_is_rejected() -> None:
    check_json(nested(LIMITS.json_depth))
    with pytest.raises(LimitExceededError):
        check_json(nested(LIMITS.json_depth + 1))
    with pytest.raises(LimitExceededError):
        check_json(nested(100_000))


def test_recursive_value_is_rejected() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(LimitExceededError):
        check_json(loop)


def test_exponential_value_is_rejected_before_encoding() -> None:
    value: Any = "x"
    for _ in range(60):
        value = [value, value]
    with pytest.raises(LimitExceededError):
        check_json(value, msgspec.structs.replace(LIMITS, output_bytes=10_000))
