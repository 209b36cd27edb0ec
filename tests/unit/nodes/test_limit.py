"""The `limit` node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.nodes.runner import error, output, run


@pytest.mark.parametrize(("count", "items"), [(0, []), (2, [7, 8]), (3, [7, 8, 9]), (99, [7, 8, 9])])
def test_first_elements_are_kept(count: int, items: list[int]) -> None:
    found = output(run("limit", {"count": count}, payload=[7, 8, 9]))
    assert found == {"items": items, "count": len(items), "original_count": 3}


@pytest.mark.parametrize("count", [-1, 1.5, "2", None])
def test_invalid_count_fails(count: Any) -> None:
    found = error(run("limit", {"count": "$trigger"}, payload=[1], trigger=count))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.count" in found.message
