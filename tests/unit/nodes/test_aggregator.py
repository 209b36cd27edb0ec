"""The `aggregator` node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.nodes.runner import error, output, run

FAILED = (True, {"error": {"code": "X", "message": "x"}})


def entries(failed: int, total: int) -> list[tuple[bool, Any]]:
    return [FAILED if index < failed else (False, index) for index in range(total)]


def aggregate(tolerate: Any, found: list[tuple[bool, Any]]) -> Any:
    parameters = {} if tolerate is None else {"tolerate": tolerate}
    return run("aggregator", parameters, entries=lambda: iter(found))


def test_list_keeps_order_gaps_and_errors() -> None:
    found = [(False, {"v": 2}), FAILED, (False, None), (False, {"v": 4})]
    assert output(aggregate(None, found)) == [{"v": 2}, FAILED[1], None, {"v": 4}]


def test_h_d12_no_items_give_empty_list() -> None:
    # Red if an aggregator without entries gives null.
    assert output(aggregate(None, [])) == []
    assert output(aggregate("0%", [])) == []


@pytest.mark.parametrize(
    ("tolerate", "failed", "total", "tolerated"),
    [
        (None, 4, 4, True),
        (0, 0, 4, True),
        (0, 1, 4, False),
        (2, 2, 4, True),
        (2, 3, 4, False),
        ("25%", 1, 4, True),
        ("25%", 2, 4, False),
        ("33%", 1, 3, False),
        ("34%", 1, 3, True),
        ("0%", 1, 1000, False),
        ("100%", 3, 3, True),
    ],
)
def test_failures_are_tolerated_up_to_limit(tolerate: Any, failed: int, total: int, tolerated: bool) -> None:
    outcome = aggregate(tolerate, entries(failed, total))
    if tolerated:
        assert len(output(outcome)) == total
    else:
        found = error(outcome)
        assert found.code == "TOO_MANY_FAILURES"
        assert found.details == {"failed": failed, "total": total, "tolerated": tolerate}


def test_success_shaped_like_error_is_not_counted() -> None:
    assert output(aggregate(0, [(False, {"error": {"code": "X"}})])) == [{"error": {"code": "X"}}]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 100))
def test_percentage_of_failures_is_tolerated(failed: int, succeeded: int, percent: int) -> None:
    total = failed + succeeded
    outcome = aggregate(f"{percent}%", entries(failed, total))
    if total and failed / total * 100 > percent + 1e-9:
        assert error(outcome).code == "TOO_MANY_FAILURES"
    else:
        assert len(output(outcome)) == total
