"""Fixtures: a real Redis server, used with redis-py instead of the adapter's client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.support.services.redis_server import redis_server


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A connection to an empty server used by this test only."""
    with Redis(unix_socket_path=redis_server().socket) as connection:
        connection.flushall()
        yield connection
