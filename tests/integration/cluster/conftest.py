"""The fleets that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cluster.fleets import each_of, shared
from tests.integration.cluster.standing import Standing, standing

in_place = shared(standing, in_place=True)  # pure nodes run where their predecessors did
travelling = shared(standing, in_place=False)  # every node travels
stood = each_of("in_place", "travelling")
_scheduled = shared(standing, in_place=True, workers=0)


@pytest.fixture
def crew(_scheduled: Standing) -> Iterator[Standing]:
    """A scheduler and no workers: a test brings its own, and they go with it."""
    yield _scheduled
    for each in _scheduled.fleet.of("worker"):
        each.kill()
