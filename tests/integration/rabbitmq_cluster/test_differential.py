"""Random definitions over two workers and RabbitMQ, many at once, each held against the oracle."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.integration.cluster.standing import Standing
from tests.integration.cluster.test_differential import _differences

TOTAL = int(os.environ.get("RUNE_DIFFERENTIAL_RABBITMQ", "500"))
HALVES = {"in_place": range(70_000, 70_000 + TOTAL // 2), "travelling": range(80_000, 80_000 + TOTAL // 2)}


@pytest.mark.parametrize("kind", HALVES)
def test_random_definitions_end_as_the_oracle_says(kind: str, request: pytest.FixtureRequest) -> None:
    stood: Standing = request.getfixturevalue(kind)
    assert asyncio.run(_differences(stood, HALVES[kind])) == []
