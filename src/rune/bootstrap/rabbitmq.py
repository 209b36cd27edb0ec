"""RabbitMQ components of a process: the queue, status messages, messages of other programs, and dead letters."""

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
    """All components of one process that use the broker."""

    def __init__(self, settings: Settings, member: ProcessInfo) -> None:
        parse_address(settings.queue)  # an invalid address must fail now: it is not an outage to wait for
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
        publisher = BatchingEventPublisher if settings.statuses == "batched" else RabbitEventPublisher
        self._event_publisher = publisher(self.queue.publisher, self.queue.topology, self._legacy)
        self._status_publisher: StatusPublisher | None = None

    def wrap_state(self, state: RedisState, stores: RedisStores, data_cache: ExecutionDataCache) -> State:
        """Wrap the state: skip unserved queues, predict ends, publish statuses if configured, and batch.

        Statuses are published inside the batch, so that they are published before the batch sends its tokens.
        """
        self.queue.set_route(state.queue_of)
        self.queue.set_context_lookup(state.names_of)
        wrapped: State = ServedQueuesFilter(state, state.queue_of, stores.fleet)
        wrapped = EndPredictingState(wrapped, stores.release)
        if self._settings.statuses != "none":
            wrapped = self._status_publisher = StatusPublisher(wrapped, self._event_publisher, data_cache)
        return BatchingState(wrapped)

    def serve(self, engine: Engine) -> None:
        """Publish the statuses of an engine's executions, and deliver messages of other programs to it."""
        engine.notify(self._event_publisher)
        foreign = ForeignMessages(engine.backend, engine.plans, engine.launcher)
        self.queue.set_foreign_handler(foreign.take)
        self._legacy.set_handler(foreign.take)
        if self._settings.wire_inline:
            clock = engine.backend.clock
            self.queue.set_message_builder(
                SelfContainedMessages(engine.data_cache, engine.finisher, clock, self._settings.wire_bytes)
            )

    async def _check_topology(self) -> None:
        try:
            await self.queue.check()
        except TopologyMismatchError:
            raise
        except AmqpError as error:
            log.warning("the broker is not ready yet: %s", error.message)

    @asynccontextmanager
    async def running(self, roles: frozenset[str]) -> AsyncIterator[None]:
        """Run the components while the block runs, and until the last statuses are published.

        An unreachable broker may come back, so it is no error; a different topology does not change, so it is.
        """
        if roles:
            await self._check_topology()
        tasks: list[asyncio.Task[None]] = []
        if "worker" in roles and self._settings.legacy_consume:
            self._legacy.start()
        if "scheduler" in roles and self._settings.queue_kind == "quorum":
            dead_letters = DeadLetters(self._settings.queue, self.queue.topology)
            tasks.append(asyncio.create_task(requeue_innocent(dead_letters)))
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._status_publisher is not None:
                await self._status_publisher.close()
            await self._event_publisher.close()
