"""RabbitMQ components of a process: the queue, status messages, messages of other programs, and dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rune.adapters.rabbitmq.amqp.connection import parse_address
from rune.adapters.rabbitmq.amqp.errors import AmqpError
from rune.adapters.rabbitmq.consumer import RabbitEventConsumer
from rune.adapters.rabbitmq.dead_letters import DeadLetters, requeue_innocent
from rune.adapters.rabbitmq.legacy import LegacyExecutor
from rune.adapters.rabbitmq.publisher import BatchingEventPublisher, RabbitEventPublisher
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import TopologyMismatchError
from rune.adapters.redis.state import RedisState, SendConfirmations
from rune.adapters.redis.stores import RedisStores
from rune.codec.messages import NodeExecutionMessage
from rune.core.execution.decision import FinishExecution
from rune.core.execution.token import Token
from rune.ports.clock import Clock
from rune.ports.processes import ProcessInfo
from rune.ports.state import State
from rune.runtime.engine import Engine
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.messaging.completion_publisher import MAX_ENVELOPE_BYTES
from rune.runtime.messaging.foreign_messages import ForeignMessages
from rune.runtime.messaging.published_values import MAX_PUBLISHED_BYTES
from rune.runtime.messaging.self_contained_messages import SelfContainedMessages
from rune.runtime.messaging.status_publisher import StatusPublisher
from rune.runtime.plan_cache import QueueRouter
from rune.runtime.state_wrapper import BatchingState, EndPredictingState, LostTokensFilter
from rune.settings import Settings
from rune.telemetry.counters import Counters

log = logging.getLogger("rune.rabbitmq")


class EngineLink:
    """Leads from the queue to the engine, which sends through the queue and is therefore built after it. Nothing
    arrives before both run."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._foreign: ForeignMessages | None = None

    def connect(self, engine: Engine) -> None:
        self._engine = engine
        self._foreign = ForeignMessages(engine.backend, engine.plans, engine.launcher)

    async def take_foreign(self, message: NodeExecutionMessage, body: bytes) -> None:
        """Start the execution of a message that another program published."""
        assert self._foreign is not None
        await self._foreign.take(message, body)

    async def finish(self, execution: str, finish: FinishExecution, now: int) -> None:
        """End an execution."""
        assert self._engine is not None
        await self._engine.finisher.finish(execution, finish, now)


class RabbitComponents:
    """All components of one process that use the broker."""

    def __init__(
        self,
        settings: Settings,
        member: ProcessInfo,
        router: QueueRouter,
        data_cache: ExecutionDataCache,
        clock: Clock,
        confirmations: SendConfirmations,
        counters: Counters,
    ) -> None:
        parse_address(settings.queue)  # an invalid address must fail now: it is not an outage to wait for
        self._settings = settings
        self._router = router
        self._data_cache = data_cache
        self._link = EngineLink()
        self._confirmations = confirmations

        def on_sent(execution: str, tokens: Sequence[Token]) -> None:
            counters.tokens_sent += len(tokens)
            confirmations.add(execution, tokens)

        self.queue = RabbitQueue(
            settings.queue,
            prefix=settings.queue_prefix,
            queues=settings.queues,
            consumer=member.name,
            prefetch=settings.slots,
            kind=settings.queue_kind,
            adopt=True,
            route=router.queue_of,
            context_lookup=router.message_context,
            message_builder=self._full_messages(clock) if settings.wire_inline else None,
            foreign_handler=self._link.take_foreign,
            on_sent=on_sent,
        )
        self._legacy = LegacyExecutor(
            settings.queue, self.queue.topology, member.name, self._link.take_foreign
        )
        publisher = BatchingEventPublisher if settings.statuses == "batched" else RabbitEventPublisher
        self.events = publisher(self.queue.publisher, self.queue.topology, self._legacy)
        self.event_consumer = RabbitEventConsumer(settings.queue, self.queue.topology, member.name)
        self._worker = member.name
        self._status_publisher: StatusPublisher | None = None

    def _full_messages(self, clock: Clock) -> SelfContainedMessages:
        return SelfContainedMessages(self._data_cache, self._link.finish, clock, self._settings.wire_bytes)

    def wrap_state(self, state: RedisState, stores: RedisStores) -> State:
        """Wrap the state: resend only what is lost, predict ends, publish statuses if configured, and batch.

        Statuses are published inside the batch, so that they are published before the batch sends its tokens.
        """
        times = stores.search_times()
        wrapped: State = LostTokensFilter(state, self.queue, stores.processes, times, self._confirmations.add)
        wrapped = EndPredictingState(wrapped, stores.release)
        if self._settings.statuses in ("each", "batched"):
            wrapped = self._status_publisher = StatusPublisher(
                wrapped, self.events, self._data_cache, state.may_report, self._worker, self._max_output()
            )
        return BatchingState(wrapped)

    def _max_output(self) -> int:
        if not self._settings.wire_inline:
            return MAX_PUBLISHED_BYTES
        return max(0, self._settings.wire_bytes - MAX_ENVELOPE_BYTES)

    def connect(self, engine: Engine) -> None:
        """Deliver messages of other programs to this engine."""
        self._link.connect(engine)

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
            await self.events.close()
