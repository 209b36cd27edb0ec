"""Streams of events: server-sent events and WebSockets over the same places in the same watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rune.errors import RuneError
from rune.server.auth import StillValid, authorize_route, hold_authorized
from rune.server.live.feed import CHUNK, EncodedEvent, ExecutionFeed, FeedRegistry, Subscription, sse

HEARTBEAT_S = 15.0  # s
STALL_TIMEOUT_S = 30.0  # s after which one who takes nothing is dropped
HEARTBEAT_BYTES = b": beat\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class HeartbeatTimer:
    """The one timer of a stream: a sign of life where nothing was sent for a while, and the end of one who takes
    nothing. Sending itself arms no timer, so that an event costs each who follows as little as can be."""

    def __init__(self, follower: Subscription, limit: asyncio.Timeout) -> None:
        self._follower = follower
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # when it began to send what is not taken yet
        self._last = self._loop.time()
        self._due = self._loop.call_later(self._pause, self._tick)

    @property
    def _pause(self) -> float:
        return min(HEARTBEAT_S / 3, STALL_TIMEOUT_S / 2)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._since is not None and now - self._since >= STALL_TIMEOUT_S:
            self._limit.reschedule(now)
            return
        if self._since is None and now - self._last >= HEARTBEAT_S * 2 / 3:
            self._follower.remind()
        self._due = self._loop.call_later(self._pause, self._tick)

    async def sent(self, sending: Awaitable[None]) -> None:
        """Send something, which may take as long as `STALL`."""
        self._since = self._loop.time()
        await sending
        self._last, self._since = self._since, None

    def stop(self) -> None:
        """No more ticks."""
        self._due.cancel()


class EventSubscription(Subscription):
    """Somebody's place among the events of an execution."""

    def __init__(
        self,
        watches: FeedRegistry,
        watch: ExecutionFeed,
        after: int,
        *,
        outer: bool = False,
        singly: bool = False,
    ) -> None:
        super().__init__()
        self._watches = watches
        self._watch = watch
        self._outer = outer  # only what happened outside of splits
        self._singly = singly  # events one by one, not in pieces of a stream
        self.after = after

    @property
    def over(self) -> bool:
        """Whether everything there is was told."""
        return self._watch.ended and self.after >= self._watch.last

    async def pieces(self) -> AsyncGenerator[list[EncodedEvent] | bytes | None, None]:
        self._watch.waiting.add(self.news)
        try:
            while not self.gone and not self._watches.closed:
                self.news.clear()
                before = self.after
                piece = await self._joined() if self._is_plain else await self._chosen()
                if piece:
                    yield piece
                elif self.after != before:
                    continue
                elif self.over:
                    return
                elif self._reminded:
                    self._reminded = False
                    yield None
                else:
                    await self.news.wait()
        finally:
            self._watch.waiting.discard(self.news)

    @property
    def _is_plain(self) -> bool:
        return not self._outer and not self._singly

    async def _joined(self) -> bytes:
        """What follows, as bytes that all who are at this place are sent."""
        piece = self._watch.joined(self.after)
        if piece is None:
            # Reading waits for others who read, never for somebody who is slow to take what was read.
            async with self._watches.backlogs:
                piece = self._watch.joined(self.after) or await self._watch.rejoined(self.after)
        data, self.after = piece
        return data

    async def _chosen(self) -> list[EncodedEvent] | bytes:
        recent = self._watch.holds(self.after)
        if recent:
            found = self._watch.newest(self.after)
        else:
            async with self._watches.backlogs:
                found = await self._watch.backlog(self.after, CHUNK)
        if found:
            self.after = found[-1].number
        if self._singly:
            return found
        outer = b"".join(sse(each) for each in found if not each.inside)
        return outer + self._watch.rollup() if found and recent else outer


class EventStream(Response):
    """The events of an execution as server-sent events, numbered by `id`; over when it has ended."""

    def __init__(self, watches: FeedRegistry, execution: str, after: int, *, outer: bool) -> None:
        self.background = None
        self.status_code = 200
        self._asked = (watches, execution, after, outer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watches, execution, after, outer = self._asked
        async with watches.subscribe(execution) as watch:
            follower = EventSubscription(watches, watch, after, outer=outer)
            if follower.over:
                # A browser that is told this does not come back; one whose stream merely ends does.
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            await stream(follower, receive, authorize_route(scope, send))


async def stream(follower: Subscription, receive: Receive, send: Send) -> None:
    """Send pieces until they end, or whoever reads them has gone or takes no more."""
    leaving = asyncio.ensure_future(_left(receive))
    leaving.add_done_callback(follower.leave)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await _body(send, b"retry: 1000\n\n")
        async with asyncio.timeout(None) as limit:
            await _pump(follower, HeartbeatTimer(follower, limit), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        # The answer is left unfinished, which closes the connection: its reader goes on from the last id it has.
        return
    finally:
        leaving.remove_done_callback(follower.leave)
        leaving.cancel()


async def _pump(follower: Subscription, ticker: HeartbeatTimer, send: Send) -> None:
    try:
        async with aclosing(follower.pieces()) as pieces:
            async for piece in pieces:
                data = b"".join(map(sse, piece)) if isinstance(piece, list) else piece
                if data != b"":
                    await ticker.sent(_body(send, HEARTBEAT_BYTES if data is None else data))
    finally:
        ticker.stop()


async def _body(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve_socket(
    socket: WebSocket, watches: FeedRegistry, execution: str, after: int, still: StillValid | None = None
) -> None:
    """The events of an execution over a WebSocket, one text message each."""
    try:
        async with watches.subscribe(execution) as watch:
            await socket.accept()
            follower = EventSubscription(watches, watch, after, singly=True)
            leaving = asyncio.ensure_future(_hung_up(socket))
            leaving.add_done_callback(follower.leave)
            try:
                await _tell(socket, follower, still)
            finally:
                leaving.remove_done_callback(follower.leave)
                leaving.cancel()
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        return
    except RuneError as error:
        if socket.client_state is WebSocketState.CONNECTING:
            await socket.close(4404, error.code)


async def _tell(socket: WebSocket, follower: EventSubscription, still: StillValid | None) -> None:
    async with asyncio.timeout(None) as limit, aclosing(follower.pieces()) as pieces:
        ticker = HeartbeatTimer(follower, limit)
        try:
            async for piece in pieces:
                await hold_authorized(still)
                for each in piece or ():
                    assert isinstance(each, EncodedEvent)
                    await ticker.sent(socket.send_text(each.data.decode()))
        finally:
            ticker.stop()
    if not follower.gone:
        with suppress(RuntimeError):
            await socket.close(1000)


async def _hung_up(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
