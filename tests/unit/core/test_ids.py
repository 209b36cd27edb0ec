"""Ids that every process derives alike."""

from __future__ import annotations

from rune.core.execution.token import child_id, fraction, idempotency_key


def test_child_id_depends_on_parent_token_and_attempt() -> None:
    assert child_id("x", "call", 1) == child_id("x", "call", 1)
    assert (
        len({child_id(*each) for each in [("x", "a", 1), ("y", "a", 1), ("x", "b", 1), ("x", "a", 2)]}) == 4
    )


def test_idempotency_key_of_token_names_root_execution_and_token() -> None:
    assert idempotency_key("x", "pay[3]") == "x:pay[3]"


def test_fraction_of_same_parts_is_same_number_below_one() -> None:
    assert fraction("x", 1) == fraction("x", 1) != fraction("x", 2)
    assert all(0 <= fraction("x", each) < 1 for each in range(100))
