"""Contract tests of the Redis state and queue on a Redis Cluster of three masters."""

from __future__ import annotations

from tests.contract import test_redis
from tests.support.services.redis_cluster import redis_cluster_servers


class TestState(test_redis.TestState):
    def url(self) -> str:
        return redis_cluster_servers().url


class TestQueue(test_redis.TestQueue):
    def url(self) -> str:
        return redis_cluster_servers().url


class TestMalformedMessages(test_redis.TestMalformedMessages):
    def url(self) -> str:
        return redis_cluster_servers().url
