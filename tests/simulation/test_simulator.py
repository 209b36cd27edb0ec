"""The simulator in small: a few hundred worlds."""

from __future__ import annotations

import pytest

from tests.simulation.run import run_seed

BATCH = 25


@pytest.mark.parametrize("first", range(0, 400, BATCH))
def test_worlds_end_as_the_oracle_says(first: int) -> None:
    ends = {run_seed(seed) for seed in range(first, first + BATCH)}

    assert ends <= {"completed", "failed", "halted", "cancelled"}


def test_the_same_seed_is_the_same_world() -> None:
    assert [run_seed(seed) for seed in range(20)] == [run_seed(seed) for seed in range(20)]
