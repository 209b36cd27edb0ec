"""Runs a few hundred seeds of the simulator."""

from __future__ import annotations

import pytest

from tests.simulation.run import run_seed

BATCH = 25


@pytest.mark.parametrize("first", range(0, 400, BATCH))
def test_seeds_end_as_oracle_expects(first: int) -> None:
    ends = {run_seed(seed) for seed in range(first, first + BATCH)}

    assert ends <= {"completed", "failed", "halted", "cancelled"}


def test_same_seed_gives_same_end() -> None:
    assert [run_seed(seed) for seed in range(20)] == [run_seed(seed) for seed in range(20)]
