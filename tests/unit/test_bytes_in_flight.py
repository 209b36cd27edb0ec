"""The bytes of bodies that a server works on are limited."""

from __future__ import annotations

import pytest

from rune.server.bodies import LARGE_BODY_BYTES, MAX_UNCOUNTED_BODY_BYTES, BytesInFlight, HeldBody
from rune.server.responses import ApiError

LARGE = LARGE_BODY_BYTES + 1


def refusal(bodies: BytesInFlight, body: HeldBody, size: int) -> str:
    """Return why a body cannot grow to a size."""
    with pytest.raises(ApiError) as refused:
        bodies.grow(body, size)
    assert refused.value.code == "TOO_MANY_BYTES"
    return str(refused.value)


def test_body_counts_until_it_is_released_however_often_its_size_is_told() -> None:
    bodies, body = BytesInFlight(3 * LARGE, 0), HeldBody()
    bodies.grow(body, LARGE)
    bodies.grow(body, 2 * LARGE)
    assert bodies.count == 2 * LARGE
    bodies.release(body)
    bodies.release(body)
    assert bodies.count == 0


def test_body_above_the_limit_is_refused_with_the_limit() -> None:
    bodies, second = BytesInFlight(2 * LARGE, 0), HeldBody()
    bodies.grow(HeldBody(), LARGE)
    bodies.grow(second, LARGE)
    assert f"{2 * LARGE:,}" in refusal(bodies, second, LARGE + 1)
    bodies.release(second)
    assert bodies.count == LARGE


def test_bodies_of_a_few_kilobytes_are_not_counted() -> None:
    bodies = BytesInFlight(0, 0)
    bodies.grow(HeldBody(proved=False), MAX_UNCOUNTED_BODY_BYTES)
    assert bodies.count == 0


def test_small_bodies_have_room_that_large_ones_may_not_use() -> None:
    bodies = BytesInFlight(2 * LARGE, 100_000)
    bodies.grow(HeldBody(), 2 * LARGE)
    assert f"{2 * LARGE:,}" in refusal(bodies, HeldBody(), LARGE)
    bodies.grow(HeldBody(), 60_000)
    assert f"{2 * LARGE + 100_000:,}" in refusal(bodies, HeldBody(), 60_000)


def test_bodies_of_unproved_senders_may_use_half() -> None:
    bodies, first = BytesInFlight(2 * LARGE, 0), HeldBody(proved=False)
    bodies.grow(first, LARGE)
    assert f" {LARGE:,}" in refusal(bodies, HeldBody(proved=False), 60_000)
    bodies.grow(HeldBody(), LARGE)
    bodies.release(first)
    bodies.grow(HeldBody(proved=False), LARGE)
