"""The bytes of large bodies that a server works on are limited."""

from __future__ import annotations

import pytest

from rune.server.responses import ApiError
from rune.server.routing import MAX_UNCOUNTED_BODY_BYTES, BytesInFlight

LARGE = MAX_UNCOUNTED_BODY_BYTES + 1


def test_body_counts_while_it_is_held_however_often_its_size_is_told() -> None:
    bodies = BytesInFlight(3 * LARGE)
    with bodies.hold() as grow:
        grow(LARGE)
        grow(2 * LARGE)
        assert bodies.count == 2 * LARGE
    assert bodies.count == 0


def test_body_above_the_limit_is_refused_with_the_limit_and_frees_what_it_held() -> None:
    bodies = BytesInFlight(2 * LARGE)
    with bodies.hold() as first:
        first(LARGE)
        with bodies.hold() as second:
            second(LARGE)
            with pytest.raises(ApiError, match=f"{2 * LARGE:,}") as refused:
                second(LARGE + 1)
        assert refused.value.code == "TOO_MANY_BYTES"
        assert bodies.count == LARGE


def test_small_bodies_are_not_counted() -> None:
    bodies = BytesInFlight(0)
    with bodies.hold() as grow:
        grow(MAX_UNCOUNTED_BODY_BYTES)
    assert bodies.count == 0
