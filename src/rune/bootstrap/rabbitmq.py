"""RabbitMQ carries: the queue, and what is told, heard and looked after beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.rabbitmq.amqp.address import parse_address
from rune.adapters.rabbitmq.amqp.errors import AmqpError
from rune.adapters.rabbitmq.dead_letters import DeadLetters, requeue_innocent
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.status_publisher import BatchingEventPublisher, RabbitEventPublisher
from rune.adapters.rabbitmq.topology import TopologyMismatchError
from rune.adapters.redis.state import RedisState
from rune.adapters.redis.stores import RedisStores
from rune.ports.processes import ProcessInfo
from rune.ports.state import State
from rune.runtime.engine import Engine
from rune.runtime.messaging.foreign_messages import ForeignMessages
from rune.runtime.messaging.full_messages import SelfContainedMessages
from rune.runtime.messaging.state_middleware import BatchingState, EndPredictingState, ServedQueuesFilter
from rune.runtime.messaging.status_publisher import StatusPublisher
from rune.runtime.values import ExecutionDataCache
from rune.settings import Settings

log = logging.getLogger("rune.rabbitmq")


class RabbitComponents:
    """Everything of one process that talks to the broker."""

    def __init__(self, settings: Settings, member: ProcessInfo) -> None:
        parse_address(settings.queue)  # one that cannot be read is no outage: nobody is to wait for its end
        self._settings = settings
        self.queue = RabbitQueue(
            settings.queue,
            prefix=settings.queue_prefix,
            queues=settings.queues,
            consumer=member.name,
            prefetch=settings.slots,
            kind=settings.queue_kind,
            adopt=True,
        )
        self._legacy = LegacyExecutor(settings.queue, self.queue.topology, member.name)
        spoken = BatchingEventPublisher if settings.statuses == "batched" else RabbitEventPublisher
        self._voice = spoken(self.queue.publisher, self.queue.topology, self._legacy)
        self._herald: StatusPublisher | None = None

    def wrap_state(self, state: RedisState, stores: RedisStores, data_cache: ExecutionDataCache) -> State:
        """Wrap the state. Statuses are published inside of the batch: before one of its callers sends the tokens."""
        self.queue.routes(state.queue_of)
        self.queue.names(state.names_of)
        wrapped: State = ServedQueuesFilter(state, state.queue_of, stores.fleet)
        wrapped = EndPredictingState(wrapped, stores.release)
        if self._settings.statuses != "none":
            wrapped = self._herald = StatusPublisher(wrapped, self._voice, data_cache)
        return BatchingState(wrapped)

    def serve(self, engine: Engine) -> None:
        """Tell of its executions, and bring it what others write."""
        engine.notify(self._voice)
        strangers = ForeignMessages(engine.backend, engine.plans, engine.launcher)
        self.queue.strangers(strangers.take)
        self._legacy.on_result(strangers.take)
        if self._settings.wire_inline:
            clock = engine.backend.clock
            self.queue.inlines(
                SelfContainedMessages(engine.data_cache, engine.finisher, clock, self._settings.wire_bytes)
            )

    async def _fit(self) -> None:
        try:
            await self.queue.check()
        except TopologyMismatchError:
            raise
        except AmqpError as error:
            log.warning("the broker is not ready yet: %s", error.message)

    @asynccontextmanager
    async def running(self, roles: frozenset[str]) -> AsyncIterator[None]:
        """While the engine runs, and a little longer: what it says at its end is still told. Who can never take part
        is not let in: a broker that is away may come back, one that was set up otherwise stays so."""
        if roles:
            await self._fit()
        works: list[asyncio.Task[None]] = []
        if "worker" in roles and self._settings.legacy_consume:
            self._legacy.start()
        if "scheduler" in roles and self._settings.queue_kind == "quorum":
            letters = DeadLetters(self._settings.queue, self.queue.topology)
            works.append(asyncio.create_task(requeue_innocent(letters)))
        try:
            yield
        finally:
            for each in works:
                each.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            if self._herald is not None:
                await self._herald.close()
            await self._voice.close()
