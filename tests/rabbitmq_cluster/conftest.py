"""The fleets that the tests of this folder share; each is started when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.standing import Standing
from tests.rabbitmq_cluster.standing import standing


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
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Every node travels, through replicated queues."""
    folder = tmp_path_factory.mktemp("quorum")
    with standing(folder, in_place=False, queue_kind="quorum") as made:
        yield made


@pytest.fixture(scope="package")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Every node travels, and its message brings everything along."""
    folder = tmp_path_factory.mktemp("inline")
    with standing(folder, in_place=False, wire_inline=True, wire_bytes=300_000) as made:
        yield made


@pytest.fixture(params=["in_place", "travelling"])
def stood(request: pytest.FixtureRequest) -> Standing:
    """One after the other."""
    made: Standing = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def amqp(travelling: Standing) -> str:
    """How a stranger reaches the broker of a fleet in which every node travels."""
    return travelling.settings.queue


@pytest.fixture
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Stores and nobody who works: a test brings its own, and they go with it."""
    with standing(tmp_path_factory.mktemp("crew"), in_place=True, workers=0, schedulers=0) as made:
        yield made
