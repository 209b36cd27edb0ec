"""What the processes of a cluster share over Redis: notifications, their registry, live hints, and renewals.

Notifications use pub/sub: earlier timers wake the scheduler, ended executions wake their waiters. The registry is a
hash with a field per process, removed on read once it has expired; a second hash has a field for each process that is
asked to drain. Live hints use two pub/sub channels, for requests to workers and for their reports. The keepalive renews
leases, stream entries and the registry over a connection of its own, in any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import hiredis
import msgspec

from rune.adapters.redis.client import Client, Connection
from rune.adapters.redis.encoding import KeySpace, encode_path
from rune.adapters.redis.streams import Entry, Streams
from rune.codec.decode import MalformedDataError, decode
from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.token import Path, Token
from rune.core.json_decoder import JsonDecoder
from rune.ports.journal import StoreUnavailableError
from rune.ports.processes import LiveReport, ProcessInfo, ProcessRegistry
from rune.ports.state import Fence

log = logging.getLogger("rune.redis")

RETRY_DELAY_S = 0.5
"""Delay between connection attempts while the server is unavailable."""

_ENCODER = msgspec.json.Encoder()


class _EndedMessage(msgspec.Struct, frozen=True, array_like=True):
    """The notification of an end with its terminal row."""

    execution: str
    end: ExecutionEnded


_ENDED = JsonDecoder(_EndedMessage)

LOCATE_PERIOD_S = 2.0
"""How often a process asks whether its channel still belongs to the same server of a cluster."""

Locate = Callable[[str], Awaitable[str]]
"""Returns the URL of the server that a channel belongs to."""

OnMessage = Callable[[Sequence[str]], None]
"""Receives messages; an empty list means that messages may have been missed."""

_JSON = msgspec.json.Encoder()
_PROCESS = JsonDecoder(ProcessInfo)

SEARCH_EXPIRY_MS = 600_000
"""A token whose lane was served that long beyond the begin of its search has been claimed or is searched for anew."""

MAX_FORGOTTEN = 1_000

HeldEntries = Callable[[], Sequence[Entry]]
"""Returns the stream entries that this process holds. Called in the thread of the keepalive."""

T = TypeVar("T")

_ASK = JsonDecoder(list[str])
_REPORT = JsonDecoder(LiveReport)


class _Subscription(Connection):
    """A connection that receives published messages."""

    def __init__(self, on_message: OnMessage, on_subscribed: Callable[[], None]) -> None:
        super().__init__(deadline=None)
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._subscribed = False

    def subscribe(self, channel: str) -> None:
        """Subscribe; from now on the server sends messages only."""
        self._subscribed = True
        assert self._transport is not None
        self._transport.write(hiredis.pack_command(("SUBSCRIBE", channel)))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if not self._subscribed:
            super().data_received(data)
            return
        self._reader.feed(data)
        messages: list[str] = []
        while (push := self._reader.gets()) is not False:
            if isinstance(push, list) and push[0] == b"message":
                messages.append(push[2].decode("utf-8", "replace"))
            elif isinstance(push, list) and push[0] == b"subscribe":
                self._on_subscribed()
        self._on_message(messages)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)


class SubscriberClient(Client):
    """Subscribes to a channel while `run` runs. After each reconnect the callback is called with an empty list, because
    messages may have been missed. `on_subscribed` is called when the server has confirmed the subscription."""

    def __init__(
        self,
        url: str,
        name: str,
        on_message: OnMessage,
        on_subscribed: Callable[[], None] = lambda: None,
        *,
        locate: Locate | None = None,
    ) -> None:
        """`locate` returns the URL of the server to subscribe at; without it, that is `url`."""
        super().__init__(url, deadline=None)
        self._channel = name
        self._locate = locate
        self._on_message = on_message
        self._on_subscribed = on_subscribed

    def _protocol(self) -> Connection:
        return _Subscription(self._on_message, self._on_subscribed)

    async def run(self) -> None:  # type: ignore[override]
        """Receive messages until cancelled."""
        while True:
            try:
                if self._locate is not None:
                    self._url = urlsplit(await self._locate(self._channel))
                connection = await self._connected()
                assert isinstance(connection, _Subscription)
                connection.subscribe(self._channel)
                self._on_message([])
                if self._locate is None:
                    await connection.closed
                else:
                    await self._stay(connection, self._locate)
            except StoreUnavailableError as error:
                log.info("not subscribed to %s: %s", self._channel, error.message)
            await asyncio.sleep(RETRY_DELAY_S)

    async def _stay(self, connection: _Subscription, locate: Locate) -> None:
        """Return when the connection is lost or the channel belongs to another server of the cluster."""
        while not connection.lost:
            await asyncio.wait((connection.closed,), timeout=LOCATE_PERIOD_S)
            if urlsplit(await locate(self._channel)) != self._url:
                connection.abort()
                return


def encode_ended(execution: str, end: ExecutionEnded) -> bytes | str:
    """Return the notification of an end: with the terminal row if it is short, else the id alone."""
    return execution if end.error is not None else _ENCODER.encode(_EndedMessage(execution, end))


def decode_ended(message: str) -> tuple[str, ExecutionEnded | None]:
    """Return an execution that has ended, and its terminal row if the notification has it."""
    if message.startswith("["):
        try:
            ended = decode(_ENDED, message.encode())
            return ended.execution, ended.end
        except MalformedDataError:
            pass  # an id that looks like a row, or a row of a newer release
    return message, None


class RedisNotifier:
    """Collects ended executions until a listener takes them."""

    def __init__(self) -> None:
        self._ended: dict[str, ExecutionEnded | None] = {}
        self._missed = False
        self._event = asyncio.Event()

    def on_notification(self, ended: Sequence[tuple[str, ExecutionEnded | None]]) -> None:
        self._ended.update(ended)
        self._event.set()

    def on_subscribed(self) -> None:
        """Note that notifications from before now were missed."""
        self._missed = True
        self._event.set()

    async def ended(self) -> dict[str, ExecutionEnded | None] | None:
        while True:
            await self._event.wait()
            if self._ended:
                ended, self._ended = self._ended, {}
                return ended
            self._event.clear()
            if self._missed:
                self._missed = False
                return None


class RedisProcessRegistry:
    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._key = f"{keys.prefix}:fleet"
        self._drained = f"{keys.prefix}:fleet:drained"

    async def heartbeat(self, member: ProcessInfo) -> bool:
        if member.draining and not await self._client.call("HEXISTS", self._key, member.name):
            # The registry was emptied, or has dropped a silent process: the request is forgotten, not withdrawn.
            await self.request_drain(member.name, True)
        shown = msgspec.structs.replace(member, seen_at=await self._now())
        _, drained = await asyncio.gather(
            self._client.call("HSET", self._key, member.name, _JSON.encode(shown)),
            self._client.call("HGET", self._drained, member.name),
        )
        return drained is not None

    async def request_drain(self, name: str, draining: bool) -> None:
        if draining:
            await self._client.call("HSET", self._drained, name, "1")
        else:
            await self._client.call("HDEL", self._drained, name)

    async def leave(self, name: str) -> None:
        await asyncio.gather(
            self._client.call("HDEL", self._key, name), self._client.call("HDEL", self._drained, name)
        )

    async def list(self) -> list[ProcessInfo]:
        now = await self._now()
        found = []
        for packed in await self._client.call("HVALS", self._key):
            try:
                member = decode(_PROCESS, packed)
            except MalformedDataError:
                # Written by a newer release.
                continue
            if now - member.seen_at <= member.expiry_s * 1000:
                found.append(member)
            else:
                await self.leave(member.name)
        return sorted(found, key=lambda each: (each.started_at, each.name))

    async def _now(self) -> int:
        seconds, micros = await self._client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


class RedisSearchTimes:
    """Since when schedulers search for tokens in the lanes of a broker: a sorted set per lane. If it is lost, each
    search begins again, which costs time and no message."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys

    async def since(self, lane: str, tokens: Sequence[tuple[str, Token]]) -> list[int]:
        """Return for each token since when it is searched for: now, by the time of the server, unless that was noted
        before."""
        key = self._keys.searched(lane)
        now = await self._now()
        members = [_member(execution, token) for execution, token in tokens]
        noted = [part for member in members for part in (now, member)]
        calls = [self._client.call("ZADD", key, "NX", *noted)]
        calls += [self._client.call("ZSCORE", key, member) for member in members]
        _, *times = await asyncio.gather(*calls)
        return [now if time is None else int(float(time)) for time in times]

    async def resume(self, lane: str) -> bool:
        """Let the tokens that are searched for in a lane come up again now. Return whether there are any."""
        key = self._keys.searched(lane)
        members = await self._client.call("ZRANGE", key, 0, MAX_FORGOTTEN - 1)
        if not members:
            return False
        now = await self._now()
        due: dict[str, list[Any]] = {}
        for member in members:
            token, _, _ = member.decode().rpartition("|")
            held = self._keys.held(self._keys.partition(token.rsplit("|", 2)[0]))
            due.setdefault(held, []).extend((now, token))
        # A token that was claimed meanwhile has a lease, which the sweep respects, or is no longer a member.
        calls = [self._client.call("ZADD", held, "XX", "LT", *each) for held, each in due.items()]
        await asyncio.gather(*calls)
        await self._client.call("ZREM", key, *members)
        return True

    async def _now(self) -> int:
        seconds, micros = await self._client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def found(self, lane: str, tokens: Sequence[tuple[str, Token]], delivered: int) -> None:
        """Forget tokens that are sent again, and those that were claimed meanwhile: nobody asks for them again."""
        key = self._keys.searched(lane)
        old = delivered - SEARCH_EXPIRY_MS
        gone = await self._client.call("ZRANGE", key, "-inf", old, "BYSCORE", "LIMIT", 0, MAX_FORGOTTEN)
        gone += [_member(execution, token) for execution, token in tokens]
        if gone:
            await self._client.call("ZREM", key, *gone)


def _member(execution: str, token: Token) -> str:
    """Return the name of a token and the attempt of its node."""
    resumed = "r" if token.resumed else ""
    return f"{execution}|{token.node}|{encode_path(token.path)}|{token.attempt}{resumed}"


class RedisKeepalive:
    """Renews what a process holds on one server."""

    def __init__(
        self, client: Client, keys: KeySpace, streams: Streams | None = None, held: HeldEntries | None = None
    ) -> None:
        """With `streams`, the entries that `held` returns are renewed as deliveries."""
        self._client = client
        self._keys = keys
        self._streams = streams
        self._held = held
        self.processes: ProcessRegistry = RedisProcessRegistry(client, keys)

    async def renew_lease(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        keys = self._keys.of(execution)
        renewed = await self._client.run("renew", keys, 0, execution, node, encode_path(path), fence[1])
        return bool(renewed > 0)

    async def renew_deliveries(self) -> None:
        if self._streams is not None and self._held is not None:
            await self._streams.renew(self._held())


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
        await self._subscribe(self._asks, _ASK, on_ask)

    async def listen(self, on_report: Callable[[LiveReport], None], listening: asyncio.Event) -> None:
        await self._subscribe(self._reports, _REPORT, on_report, listening.set)

    async def _subscribe(
        self,
        channel: str,
        decoder: JsonDecoder[T],
        on_message: Callable[[T], None],
        on_subscribed: Callable[[], None] = lambda: None,
    ) -> None:
        def take(messages: Sequence[str]) -> None:
            for each in messages:
                try:
                    message = decode(decoder, each.encode())
                except MalformedDataError:
                    continue
                on_message(message)

        client = SubscriberClient(
            self._url,
            channel,
            take,
            on_subscribed,
            locate=self._client.url_of if self._client.clustered else None,
        )
        try:
            await client.run()
        finally:
            await client.close()
