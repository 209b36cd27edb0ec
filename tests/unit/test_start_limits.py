"""Token buckets and validation of start limits."""

from __future__ import annotations

import pytest

from rune.ports.access import Bucket, InvalidLimitsError, Limits, check_limits


def test_bucket_refills_exactly() -> None:
    third = Bucket(3, 1_000, 1)
    assert third.pause(0) == 334
    assert third.pause(third.level(0, 333)) == 1
    assert third.pause(third.level(0, 334)) == 0
    assert third.level(0, 10**9) == third.full
    assert third.level(5, -(10**9)) == 5


@pytest.mark.parametrize(
    "limits",
    [
        Limits(rate="0/s"),
        Limits(rate="10"),
        Limits(rate="10/d"),
        Limits(rate="9999999/s"),
        Limits(burst=2),
        Limits(rate="1/s", burst=0),
        Limits(running=0),
        Limits(waiting=-1),
    ],
    ids=str,
)
def test_invalid_limits_are_rejected(limits: Limits) -> None:
    with pytest.raises(InvalidLimitsError):
        check_limits(limits)
