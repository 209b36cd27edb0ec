"""How tests are handed to the processes that run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import CUT, FIRST, FLEETS, grouped, rank
from tests.sim.mutants import MUTANTS
from tests.sim.noticed import NOTICED

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", [*FLEETS, *CUT, *FIRST])
def test_what_is_named_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).exists()
    assert test in (ROOT / file).read_text(encoding="utf-8") if test else True


def test_a_fleet_has_one_group_and_a_file_too() -> None:
    tests = [
        "tests/cluster/test_conformance.py::test_a[in_place]",
        "tests/cluster/test_conformance.py::test_a[travelling]",
        "tests/cluster/test_commands.py::test_b",
        "tests/cluster/test_killed.py::test_c",
        "tests/cluster/test_killed.py::test_d",
        "tests/rabbitmq_cluster/test_conformance.py::test_a[in_place]",
    ]
    found = grouped(tests)
    assert len({found[tests[0]], found[tests[2]]}) == 1
    assert len({found[tests[3]], found[tests[4]]}) == 1
    assert len(set(found.values())) == 4


def test_files_of_many_tests_are_cut_and_every_test_has_a_group() -> None:
    tests = [f"tests/runtime/test_crash.py::test_a[{number}]" for number in range(30)]
    found = grouped(tests)
    assert list(found) == tests
    assert len(set(found.values())) == 3


def test_what_takes_long_comes_first() -> None:
    groups = ["tests/nodes/test_edit.py", "tests/runtime/test_crash.py 0", "tests/rabbitmq_cluster/in_place"]
    assert sorted(groups, key=rank) == groups[::-1]


def test_only_mutants_that_exist_were_noticed() -> None:
    assert set(NOTICED) <= set(MUTANTS)
