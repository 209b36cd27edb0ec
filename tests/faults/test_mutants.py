"""Every mutant of the simulator still fits the functions that it changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.change import check
from tests.faults.hook import ROOT
from tests.simulation.mutants import HANDWRITTEN_ONLY, MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_fits_its_targets(name: str) -> None:
    check(MUTANTS[name])


def test_handwritten_only_mutants_exist() -> None:
    assert set(HANDWRITTEN_ONLY) <= set(MUTANTS)


def test_table_imports_no_target() -> None:
    """The table is imported before the faults are installed: a target imported with it would stay as it is."""
    targets = sorted({change.module for changes in MUTANTS.values() for change in changes})
    code = (
        f"import sys, tests.simulation.mutants; print([each for each in {targets!r} if each in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"
