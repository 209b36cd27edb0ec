"""The fleets that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cluster.fleets import each_of, shared
from tests.integration.cluster.standing import Standing
from tests.integration.rabbitmq_cluster.standing import standing

in_place = shared(standing, in_place=True)  # pure nodes run where their predecessors did
travelling = shared(standing, in_place=False)  # every node travels
stood = each_of("in_place", "travelling")
quorum = shared(standing, in_place=False, queue_kind="quorum")  # through replicated queues
inline = shared(standing, in_place=False, wire_inline=True, wire_bytes=300_000)  # everything comes along


@pytest.fixture
def amqp(travelling: Standing) -> str:
    """How a stranger reaches the broker of a fleet in which every node travels."""
    return travelling.settings.queue


@pytest.fixture
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Stores and nobody who works: a test brings its own, and they go with it."""
    with standing(tmp_path_factory.mktemp("crew"), in_place=True, workers=0, schedulers=0) as made:
        yield made
