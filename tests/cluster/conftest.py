"""The fleets that the tests of this folder share; each is started when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.standing import Standing, standing


@pytest.fixture(scope="package")
def in_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Pure nodes run where their predecessors did."""
    with standing(tmp_path_factory.mktemp("in-place"), in_place=True) as made:
        yield made


@pytest.fixture(scope="package")
def travelling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Every node travels."""
    with standing(tmp_path_factory.mktemp("travelling"), in_place=False) as made:
        yield made


@pytest.fixture(scope="package")
def _scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with standing(tmp_path_factory.mktemp("crew"), in_place=True, workers=0) as made:
        yield made


@pytest.fixture
def crew(_scheduled: Standing) -> Iterator[Standing]:
    """A scheduler and no workers: a test brings its own, and they go with it."""
    yield _scheduled
    for each in _scheduled.fleet.of("worker"):
        each.kill()


@pytest.fixture(params=["in_place", "travelling"])
def stood(request: pytest.FixtureRequest) -> Standing:
    """One after the other."""
    made: Standing = request.getfixturevalue(request.param)
    return made
