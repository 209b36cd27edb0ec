"""Clusters that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.backends import backend
from tests.support.clusters import Cluster, cluster, open_cluster

__all__ = ["backend", "cluster"]


@pytest.fixture
def amqp(cluster: Cluster) -> str:
    """The URL of the cluster's broker."""
    return cluster.settings.queue


@pytest.fixture(scope="package")
def _scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster"), "redis", in_place=True, workers=0) as made:
        yield made


@pytest.fixture
def workerless_cluster(_scheduler: Cluster) -> Iterator[Cluster]:
    """A scheduler over Redis; the workers that a test starts are killed at its end."""
    yield _scheduler
    for each in _scheduler.fleet.of("worker"):
        each.kill()


@pytest.fixture
def empty_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Unused stores and a broker, without any process."""
    folder = tmp_path_factory.mktemp("cluster")
    with open_cluster(folder, "rabbitmq", in_place=True, workers=0, schedulers=0) as made:
        yield made
