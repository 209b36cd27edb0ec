"""A test over many values names every value that fails."""

from __future__ import annotations

import inspect

import pytest

from tests.support.each import for_each


def test_each_value_is_checked_and_every_failure_is_named() -> None:
    seen = []

    @for_each("value", range(5))
    def check(value: int) -> None:
        seen.append(value)
        assert value % 2 == 0, "odd"

    with pytest.raises(pytest.fail.Exception) as raised:
        check()
    assert seen == [0, 1, 2, 3, 4]
    assert "2 of 5 fail" in str(raised.value)
    assert "1: " in str(raised.value)
    assert "3: " in str(raised.value)


def test_no_value_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nothing to check"):
        for_each("value", [])(lambda value: None)()


def test_fixtures_stay_parameters() -> None:
    checked = for_each("value", [1])(lambda value, folder: None)

    assert list(inspect.signature(checked).parameters) == ["folder"]
