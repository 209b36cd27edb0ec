"""Opens state, queue, notifier and process registry on one Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rune.adapters.redis.checks import check
from rune.adapters.redis.client import Client
from rune.adapters.redis.cluster.client import open_client
from rune.adapters.redis.encoding import PARTITIONS, FindExecution, KeySpace, Plans, encode_path, find_none
from rune.adapters.redis.processes import (
    RedisKeepalive,
    RedisLiveChannel,
    RedisNotifier,
    RedisProcessRegistry,
    SubscriberClient,
    decode_ended,
)
from rune.adapters.redis.queue.queue import IDLE_S, QueueDepthReader, RedisQueue
from rune.adapters.redis.queue.streams import Streams, StreamSender
from rune.adapters.redis.rebuild import RunningExecutions
from rune.adapters.redis.state import RedisState
from rune.core.execution.token import Path
from rune.ports.clock import Clock
from rune.ports.journal import Journal
from rune.ports.processes import Keepalive
from rune.ports.queue import DEFAULT_QUEUE, Route, default_route


class RedisStores:
    """The connections of one process and the stores over them."""

    def __init__(self, url: str, *, prefix: str = "rune", partitions: int = PARTITIONS) -> None:
        self.keys = KeySpace(prefix, partitions)
        self._url = url
        self.client = open_client(url, run_number_key=self.keys.run_number)
        self._blocking = Client(url, deadline=None)
        self._queues: list[RedisQueue] = []
        self._states: list[RedisState] = []
        self.notifier = RedisNotifier()
        self.processes = RedisProcessRegistry(self.client, self.keys)
        self.live = RedisLiveChannel(url, self.client, prefix)

    def queue(
        self,
        consumer: str,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        route: Route = default_route,
        idle: float = IDLE_S,
    ) -> RedisQueue:
        """Return the queue of a consumer. It reads nothing before the first `receive`."""
        streams = Streams(self.client, self.keys, consumer, queues)
        depths = QueueDepthReader(self.client, self.keys, queues)
        queue = RedisQueue(self.client, self._blocking, streams, route=route, idle=idle, depths=depths)
        self._queues.append(queue)
        return queue

    def state(
        self,
        journal: Journal,
        plans: Plans,
        *,
        queue: RedisQueue | None = None,
        running_executions: RunningExecutions | None = None,
        find: FindExecution = find_none,
        clock: Clock | None = None,
    ) -> RedisState:
        """Return the state. With a queue on the same server it sends tokens and deletes entries atomically with its
        own changes. `find` returns executions that the process has loaded already."""
        sender = None if queue is None else StreamSender(self.keys, queue)
        state = RedisState(
            self.client,
            self.keys,
            journal,
            plans,
            clock=clock,
            running_executions=running_executions,
            sender=sender,
            find=find,
        )
        if queue is not None:
            queue.on_sent = state.confirmations.add
        self._states.append(state)
        return state

    @asynccontextmanager
    async def keepalive(
        self, consumer: str, queues: Sequence[str] = (DEFAULT_QUEUE,), queue: RedisQueue | None = None
    ) -> AsyncIterator[Keepalive]:
        """Open a connection that renews what this process holds, in the event loop of the caller. With a queue, its
        entries are renewed too."""
        client = open_client(self._url, run_number_key=self.keys.run_number)
        try:
            if queue is None:
                yield RedisKeepalive(client, self.keys)
            else:
                streams = Streams(client, self.keys, consumer, queues)
                yield RedisKeepalive(client, self.keys, streams, queue.held_entries)
        finally:
            await client.close()

    async def connect(self) -> None:
        """Connect to each server and call a function there; see `Client.server_run`."""
        for part in range(self.keys.partitions if self.client.clustered else 1):
            await self.client.server_run(self.keys.due(part))

    async def release(self, execution: str, node: int, path: Path) -> None:
        """Stop the sweeper from resending a token whose execution ended before the token was applied."""
        held = self.keys.held(self.keys.partition(execution))
        await self.client.call("ZREM", held, f"{execution}|{node}|{encode_path(path)}")

    def _on_ended(self, messages: Sequence[str]) -> None:
        ended = [decode_ended(each) for each in messages]
        for state in self._states:
            state.forget([execution for execution, _ in ended])
        self.notifier.on_notification(ended)

    @asynccontextmanager
    async def running(self, clock: Clock) -> AsyncIterator[None]:
        """Check the server, wake the clock when an earlier timer is set, and close all connections at the end."""
        prefix = self.keys.prefix
        locate = self.client.url_of if self.client.clustered else None
        channels = (
            SubscriberClient(self._url, f"{prefix}:nearer", lambda _: clock.wake(), locate=locate),
            SubscriberClient(
                self._url,
                f"{prefix}:ended",
                self._on_ended,
                on_subscribed=self.notifier.on_subscribed,
                locate=locate,
            ),
        )
        try:
            await check(self.client, self.keys)
            subscriptions = [asyncio.create_task(each.run()) for each in channels]
            try:
                yield
            finally:
                for each in subscriptions:
                    each.cancel()
                await asyncio.gather(*subscriptions, return_exceptions=True)
        finally:
            for queue in self._queues:
                await queue.close()
            for state in self._states:
                await state.close()
            for client in (*channels, self.client, self._blocking):
                await client.close()
