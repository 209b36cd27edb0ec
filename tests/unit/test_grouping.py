"""The groups of tests that run in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.noticed import NOTICED
from tests.support.grouping import CUT, FIRST, FLEETS, grouped, rank

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", [*FLEETS, *CUT, *FIRST])
def test_named_file_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).exists()
    assert test in (ROOT / file).read_text(encoding="utf-8") if test else True


def test_group_of_cluster_and_of_file_is_one() -> None:
    tests = [
        "tests/integration/cluster/test_conformance.py::test_a[in_place]",
        "tests/integration/cluster/test_conformance.py::test_a[travelling]",
        "tests/integration/cluster/test_commands.py::test_b",
        "tests/integration/cluster/test_killed.py::test_c",
        "tests/integration/cluster/test_killed.py::test_d",
        "tests/integration/rabbitmq_cluster/test_conformance.py::test_a[in_place]",
    ]
    found = grouped(tests)
    assert len({found[tests[0]], found[tests[2]]}) == 1
    assert len({found[tests[3]], found[tests[4]]}) == 1
    assert len(set(found.values())) == 4


def test_group_of_long_file_is_cut() -> None:
    tests = [f"tests/integration/embedded/test_crash.py::test_a[{number}]" for number in range(30)]
    found = grouped(tests)
    assert list(found) == tests
    assert len(set(found.values())) == 3


def test_rank_of_slow_folder_is_lowest() -> None:
    groups = [
        "tests/unit/nodes/test_edit.py",
        "tests/integration/embedded/test_crash.py 0",
        "tests/integration/rabbitmq_cluster/in_place",
    ]
    assert sorted(groups, key=rank) == groups[::-1]


def test_noticed_mutants_exist() -> None:
    assert set(NOTICED) <= set(MUTANTS)
