"""Scripts are tried on a real server, by another client than the adapter's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.support.services.redis_server import redis_server


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A connection to a server that nobody else uses meanwhile."""
    with Redis(unix_socket_path=redis_server().socket) as connection:
        connection.flushall()
        yield connection
