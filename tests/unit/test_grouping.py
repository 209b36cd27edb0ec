"""Groups of tests that run in one pytest-xdist process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.detecting_seeds import DETECTING_SEEDS
from tests.simulation.mutants import MUTANTS
from tests.support.grouping import CUT, FIRST, FLEETS, grouped, rank

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", [*FLEETS, *CUT, *FIRST])
def test_configured_path_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).exists()
    assert test in (ROOT / file).read_text(encoding="utf-8") if test else True


def test_tests_of_one_cluster_or_file_share_a_group() -> None:
    tests = [
        "tests/integration/cluster/test_conformance.py::test_a[redis-in_place]",
        "tests/integration/cluster/test_conformance.py::test_a[redis-travelling]",
        "tests/integration/cluster/test_commands.py::test_b[redis-in_place---worker]",
        "tests/integration/cluster/test_process_crashes.py::test_c",
        "tests/integration/cluster/test_process_crashes.py::test_d",
        "tests/integration/cluster/test_conformance.py::test_a[rabbitmq-in_place]",
    ]
    found = grouped(tests)
    assert len({found[tests[0]], found[tests[2]]}) == 1
    assert len({found[tests[3]], found[tests[4]]}) == 1
    assert len(set(found.values())) == 4


def test_long_file_is_cut_into_groups() -> None:
    tests = [f"tests/integration/embedded/test_crash.py::test_a[{number}]" for number in range(30)]
    found = grouped(tests)
    assert list(found) == tests
    assert len(set(found.values())) == 3


def test_slow_folders_rank_first() -> None:
    groups = [
        "tests/unit/nodes/test_edit.py",
        "tests/integration/embedded/test_crash.py 0",
        "tests/integration/cluster/redis-in_place",
    ]
    assert sorted(groups, key=rank) == groups[::-1]


def test_mutants_with_detecting_seed_exist() -> None:
    assert set(DETECTING_SEEDS) <= set(MUTANTS)
