"""The cost of decoding JSON is in proportion to its size, whatever numbers it has, and the value is the exact one."""

from __future__ import annotations

import json
import math
import sys
import time

import msgspec
import pytest

from rune.core.json_decoder import JsonDecoder, read_json

SIZE = 400_000
ODD_NUMBERS = (
    "1e300",
    "1E+300",
    "-1e300",
    "1.7976931348623157e308",
    "5e-324",
    "2.2250738585072014e-308",
    "1e-300",
    "1e23",
    "9007199254740993",
    "9007199254740993.0",
    "9007199254740993e0",
    "0.1e1",
    "-0.0",
    "1e00000000000000000300",
    "1" * 300,
    "0." + "1" * 4_000,
    "0." + "0" * 320 + "5",
    "1" * 4_000 + "e-4000",
)
NS_PER_BYTE = 1_500
"""What a byte of a number may cost at most, on a busy machine: `1e300` took 10,000 ns, `5e-324` 4,000."""


def listed(number: str) -> bytes:
    return b"[" + b",".join([number.encode()] * max(1, SIZE // (len(number) + 1))) + b"]"


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: number[:24])
def test_number_of_any_form_is_decoded_in_proportion_to_its_text(number: str) -> None:
    data = listed(number)

    began = time.thread_time_ns()
    value = JsonDecoder().decode(data)
    took = time.thread_time_ns() - began

    assert took / len(data) < NS_PER_BYTE
    assert float(value[0]) == float(number)


@pytest.mark.parametrize(
    "number", [n for n in ODD_NUMBERS if "1" * 300 not in n], ids=lambda number: number[:24]
)
def test_number_of_any_form_has_the_value_of_python(number: str) -> None:
    value = read_json(f'{{"a": [{number}, 1.5, "1e300"]}}')

    assert value == json.loads(f'{{"a": [{number}, 1.5, "1e300"]}}')
    assert math.copysign(1, value["a"][0]) == math.copysign(1, float(number))


@pytest.mark.parametrize("number", ["1e309", "-1e309", "1e999999"])
def test_number_that_is_too_large_is_refused_as_by_msgspec(number: str) -> None:
    with pytest.raises(msgspec.DecodeError, match="Number out of range"):
        JsonDecoder().decode(f"[{number}]")


def test_other_threads_run_while_large_numbers_are_decoded() -> None:
    switched = 0

    def count(*_: object) -> None:
        nonlocal switched
        switched += 1

    sys.setprofile(count)
    try:
        read_json(listed("1e300"))
    finally:
        sys.setprofile(None)

    assert switched > SIZE // 10
