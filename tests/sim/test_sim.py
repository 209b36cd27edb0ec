"""The simulator in small: a few hundred worlds, and every mutant still in place."""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, TOP, Patch
from tests.sim.run import run_seed

BATCH = 25


@pytest.mark.parametrize("first", range(0, 400, BATCH))
def test_worlds_end_as_the_oracle_says(first: int) -> None:
    ends = {run_seed(seed) for seed in range(first, first + BATCH)}

    assert ends <= {"completed", "failed", "halted", "cancelled"}


def test_the_same_seed_is_the_same_world() -> None:
    assert [run_seed(seed) for seed in range(20)] == [run_seed(seed) for seed in range(20)]


@pytest.mark.parametrize(
    "patch", [patch for patches in MUTANTS.values() for patch in patches], ids=lambda patch: patch.file
)
def test_every_mutant_fits_exactly_once(patch: Patch) -> None:
    assert (TOP / patch.file).read_text(encoding="utf-8").count(patch.old) == 1
    assert patch.old != patch.new
