"""aggregator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.nodes.running import error, output, run

FAILED = (True, {"error": {"code": "X", "message": "x"}})


def entries(failed: int, total: int) -> list[tuple[bool, Any]]:
    return [FAILED if index < failed else (False, index) for index in range(total)]


def gather(tolerate: Any, found: list[tuple[bool, Any]]) -> Any:
    parameters = {} if tolerate is None else {"tolerate": tolerate}
    return run("aggregator", parameters, entries=lambda: iter(found))


def test_the_list_keeps_the_order_the_gaps_and_the_errors() -> None:
    found = [(False, {"v": 2}), FAILED, (False, None), (False, {"v": 4})]
    assert output(gather(None, found)) == [{"v": 2}, FAILED[1], None, {"v": 4}]


def test_h_d12_no_items_give_an_empty_list() -> None:
    # Red if an aggregator without entries gives null.
    assert output(gather(None, [])) == []
    assert output(gather("0%", [])) == []


@pytest.mark.parametrize(
    ("tolerate", "failed", "total", "borne"),
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
def test_failures_are_borne_up_to_the_limit(tolerate: Any, failed: int, total: int, borne: bool) -> None:
    outcome = gather(tolerate, entries(failed, total))
    if borne:
        assert len(output(outcome)) == total
    else:
        found = error(outcome)
        assert found.code == "TOO_MANY_FAILURES"
        assert found.details == {"failed": failed, "total": total, "tolerated": tolerate}


def test_a_success_that_merely_looks_like_an_error_is_not_counted() -> None:
    assert output(gather(0, [(False, {"error": {"code": "X"}})])) == [{"error": {"code": "X"}}]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 100))
def test_a_share_of_the_items(failed: int, more: int, share: int) -> None:
    total = failed + more
    outcome = gather(f"{share}%", entries(failed, total))
    if total and failed / total * 100 > share + 1e-9:
        assert error(outcome).code == "TOO_MANY_FAILURES"
    else:
        assert len(output(outcome)) == total
