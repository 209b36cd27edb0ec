"""Live hints over Redis pub/sub: one channel for requests to workers, one for their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.notifier import SubscriberClient
from rune.decoding import MalformedDataError, decode
from rune.ports.live import LiveReport

_ENCODER = msgspec.json.Encoder()
_ASK = msgspec.json.Decoder(list[str])
_REPORT = msgspec.json.Decoder(LiveReport)


class RedisLiveChannel:
    """A message that cannot be decoded, for example of a newer release, is dropped like a lost one."""

    def __init__(self, url: str, client: Client, prefix: str) -> None:
        self._url = url
        self._client = client
        self._asks = f"{prefix}:live:asks"
        self._reports = f"{prefix}:live:reports"

    async def ask(self, executions: Sequence[str]) -> int:
        return int(await self._client.call("PUBLISH", self._asks, _ENCODER.encode(executions)))

    async def report(self, report: LiveReport) -> None:
        await self._client.call("PUBLISH", self._reports, _ENCODER.encode(report))

    async def serve(self, on_ask: Callable[[Sequence[str]], None]) -> None:
        def take(messages: Sequence[str]) -> None:
            for each in messages:
                try:
                    executions = decode(_ASK, each.encode())
                except MalformedDataError:
                    continue
                on_ask(executions)

        await self._subscribe(self._asks, take)

    async def listen(self, on_report: Callable[[LiveReport], None], listening: asyncio.Event) -> None:
        def take(messages: Sequence[str]) -> None:
            for each in messages:
                try:
                    report = decode(_REPORT, each.encode())
                except MalformedDataError:
                    continue
                on_report(report)

        await self._subscribe(self._reports, take, listening.set)

    async def _subscribe(
        self,
        channel: str,
        take: Callable[[Sequence[str]], None],
        on_subscribed: Callable[[], None] = lambda: None,
    ) -> None:
        client = SubscriberClient(self._url, channel, take, on_subscribed)
        try:
            await client.run()
        finally:
            await client.close()
