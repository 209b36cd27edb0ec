"""RabbitMQ carries: the queue, and what is told, heard and looked after beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rune.adapters.rabbitmq.dead import DeadLetters
from rune.adapters.rabbitmq.herald import RabbitHerald
from rune.adapters.rabbitmq.legacy import Legacy
from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.rescue import rescue
from rune.adapters.redis.state import RedisState
from rune.ports.fleet import Member
from rune.ports.state import State
from rune.runtime.engine import Engine
from rune.runtime.herald import Herald, heralded
from rune.runtime.inlining import Inlining
from rune.runtime.strangers import Strangers
from rune.runtime.unserved import Unserved, unserved
from rune.settings import Settings


class Carrier:
    """Everything of one process that talks to the broker."""

    def __init__(self, settings: Settings, member: Member) -> None:
        self._settings = settings
        self.queue = RabbitQueue(
            settings.queue,
            prefix=settings.queue_prefix,
            queues=settings.queues,
            consumer=member.name,
            prefetch=settings.slots,
            kind=settings.queue_kind,
        )
        self._legacy = Legacy(settings.queue, self.queue.topology, member.name)
        self._voice = RabbitHerald(self.queue.publisher, self.queue.topology, self._legacy)
        self._herald: Herald | None = None
        self._unserved: Unserved | None = None

    def around(self, state: RedisState) -> State:
        """The state, with somebody around it who knows which queues are read, and a herald if statuses are wanted."""
        self.queue.routes(state.queue_of)
        self.queue.names(state.names_of)
        self._unserved = Unserved(state, state.queue_of)
        if not self._settings.statuses:
            return unserved(self._unserved)
        self._herald = Herald(unserved(self._unserved), self._voice)
        return heralded(self._herald)

    def serve(self, engine: Engine) -> None:
        """Tell of its executions, and bring it what others write."""
        engine.tell(self._voice)
        if self._unserved is not None:
            self._unserved.follows(engine.backend.fleet)
        if self._herald is not None:
            self._herald.follows(engine.books)
        strangers = Strangers(engine.backend, engine.plans, engine.launcher)
        self.queue.strangers(strangers.take)
        self._legacy.takes(strangers.take)
        if self._settings.wire_inline:
            clock = engine.backend.clock
            self.queue.inlines(Inlining(engine.books, engine.endings, clock, self._settings.wire_bytes))

    @asynccontextmanager
    async def running(self, roles: frozenset[str]) -> AsyncIterator[None]:
        """While the engine runs, and a little longer: what it says at its end is still told."""
        works: list[asyncio.Task[None]] = []
        if "worker" in roles and self._settings.legacy_consume:
            self._legacy.start()
        if "scheduler" in roles and self._settings.queue_kind == "quorum":
            letters = DeadLetters(self._settings.queue, self.queue.topology)
            works.append(asyncio.create_task(rescue(letters)))
        try:
            yield
        finally:
            for each in works:
                each.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            if self._herald is not None:
                await self._herald.close()
            await self._voice.close()
