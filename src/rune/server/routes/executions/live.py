"""Routes for live events: streams to clients as server-sent events or over a WebSocket, both over the same feeds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Annotated, Any, Literal

from fastapi import Query, WebSocket
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect, WebSocketState

from rune.core.permissions import Principal
from rune.errors import RuneError
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.server.auth import StillValid, authorize_route, hold_authorized, requires
from rune.server.connections import CUT_OFF
from rune.server.live.feed import (
    MAX_CHUNK_EVENTS,
    EncodedEvent,
    ExecutionFeed,
    FeedRegistry,
    StreamSlots,
    Subscription,
    sse,
)
from rune.server.live.fleet_feed import FleetFeed, FleetSubscription
from rune.server.live.now import sse_now
from rune.server.resource import Resource
from rune.server.responses import ApiError, problem_document, problem_response
from rune.server.routing import ID, Caller, ExecutionId, LastEventId, QueryModel, Server

HEARTBEAT_S = 15.0
STALL_TIMEOUT_S = 30.0  # a client that receives nothing for this long is disconnected
HEARTBEAT_BYTES = b": beat\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class HeartbeatTimer:
    """The only timer of a stream: requests a heartbeat if nothing was sent for a while, and disconnects a client that
    stalls. Sending an event sets no timer, which keeps the cost per subscriber low."""

    def __init__(self, subscriber: Subscription, limit: asyncio.Timeout) -> None:
        self._subscriber = subscriber
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._sending_since: float | None = None
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._tick)

    @property
    def _interval(self) -> float:
        return min(HEARTBEAT_S / 3, STALL_TIMEOUT_S / 2)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._sending_since is not None and now - self._sending_since >= STALL_TIMEOUT_S:
            self._limit.reschedule(now)
            return
        if self._sending_since is None and now - self._sent_at >= HEARTBEAT_S * 2 / 3:
            self._subscriber.request_heartbeat()
        self._timer = self._loop.call_later(self._interval, self._tick)

    async def send(self, sending: Awaitable[None]) -> None:
        """Await a send, which may take up to `STALL_TIMEOUT_S`."""
        self._sending_since = self._loop.time()
        await sending
        self._sent_at, self._sending_since = self._sending_since, None

    def stop(self) -> None:
        self._timer.cancel()


class EventSubscription(Subscription):
    """A position among the events of an execution."""

    def __init__(
        self,
        feeds: FeedRegistry,
        feed: ExecutionFeed,
        after: int,
        *,
        outer: bool = False,
        singly: bool = False,
    ) -> None:
        super().__init__()
        self._feeds = feeds
        self._feed = feed
        self._outer = outer  # events outside of splits only
        self._singly = singly  # single events instead of chunks of a stream
        self.after = after
        self._now = 0

    @property
    def over(self) -> bool:
        """Whether the execution has ended and all its events were sent."""
        return self._feed.ended and self.after >= self._feed.last

    async def pieces(self) -> AsyncGenerator[list[EncodedEvent] | bytes | None, None]:
        self._feed.waiting.add(self.changed)
        try:
            with self._feeds.following_now(self._feed):
                while not self.disconnected and not self._feeds.closed:
                    self.changed.clear()
                    before = self.after
                    piece = await self._next_chunk() if self._is_plain else await self._next_selected()
                    if piece:
                        yield piece
                    elif self.after != before:
                        continue
                    elif self.over:
                        return
                    elif self._now != self._feed.now.last:
                        yield self._next_now()
                    elif self._heartbeat_due:
                        self._heartbeat_due = False
                        yield None
                    else:
                        await self.changed.wait()
        finally:
            self._feed.waiting.discard(self.changed)

    def _next_now(self) -> list[EncodedEvent] | bytes:
        """Return what runs now. It comes after the numbered events, so that it is not older than they are."""
        found = self._feed.now.after(self._now)
        self._now = self._feed.now.last
        if self._singly:
            return [EncodedEvent(0, False, each) for each in found]
        return b"".join(map(sse_now, found))

    @property
    def _is_plain(self) -> bool:
        return not self._outer and not self._singly

    async def _next_chunk(self) -> bytes:
        """Return the next chunk, whose bytes are shared by all subscribers at this position."""
        piece = self._feed.chunk(self.after)
        if piece is None:
            # The semaphore covers only the read, so a slow client does not block the reads of others.
            async with self._feeds.backlogs:
                piece = self._feed.chunk(self.after) or await self._feed.load_chunk(self.after)
        data, self.after = piece
        return data

    async def _next_selected(self) -> list[EncodedEvent] | bytes:
        recent = self._feed.holds(self.after)
        if recent:
            found = self._feed.newest(self.after)
        else:
            async with self._feeds.backlogs:
                found = await self._feed.backlog(self.after, MAX_CHUNK_EVENTS)
        if found:
            self.after = found[-1].number
        if self._singly:
            return found
        outer = b"".join(sse(each) for each in found if not each.inside)
        return outer + await self._feed.rollup() if found and recent else outer


class EventStream(Response):
    """The events of an execution as server-sent events, numbered by `id`, until it has ended."""

    def __init__(self, feeds: FeedRegistry, execution: str, after: int, *, outer: bool) -> None:
        self.background = None
        self.status_code = 200
        self._parameters = (feeds, execution, after, outer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        feeds, execution, after, outer = self._parameters
        async with AsyncExitStack() as stack:
            stack.enter_context(feeds.slots.held(scope["principal"].name))
            feed = await stack.enter_async_context(feeds.subscribe(execution))
            subscriber = EventSubscription(feeds, feed, after, outer=outer)
            if subscriber.over:
                # A browser reconnects when a stream ends, but not after status 204.
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            await stream(subscriber, scope, receive, send)


async def stream(subscriber: Subscription, scope: Scope, receive: Receive, send: Send) -> None:
    """Send until the subscription ends, the client disconnects or stalls, or its key is no longer valid."""
    send = authorize_route(scope, send)
    disconnect = asyncio.ensure_future(_disconnected(receive))
    disconnect.add_done_callback(subscriber.leave)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await _body(send, b"retry: 1000\n\n")
        async with asyncio.timeout(None) as limit:
            await _pump(subscriber, HeartbeatTimer(subscriber, limit), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        # The unfinished response closes the connection; the client resumes after the last id that it received.
        scope[CUT_OFF] = True
    finally:
        disconnect.remove_done_callback(subscriber.leave)
        disconnect.cancel()


async def _pump(subscriber: Subscription, timer: HeartbeatTimer, send: Send) -> None:
    try:
        async with aclosing(subscriber.pieces()) as pieces:
            async for piece in pieces:
                data = b"".join(map(sse, piece)) if isinstance(piece, list) else piece
                if data != b"":
                    await timer.send(_body(send, HEARTBEAT_BYTES if data is None else data))
    finally:
        timer.stop()


async def _body(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve_socket(
    socket: WebSocket, feeds: FeedRegistry, execution: str, after: int, still: StillValid | None = None
) -> None:
    """Send the events of an execution over a WebSocket, one text message each. Those with `"event": "now"` have no
    number."""
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(feeds.slots.held(socket.scope["principal"].name))
            feed = await stack.enter_async_context(feeds.subscribe(execution))
            await socket.accept()
            subscriber = EventSubscription(feeds, feed, after, singly=True)
            disconnect = asyncio.ensure_future(_socket_disconnected(socket))
            disconnect.add_done_callback(subscriber.leave)
            try:
                await send_events(socket, subscriber, still)
            finally:
                disconnect.remove_done_callback(subscriber.leave)
                disconnect.cancel()
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        return
    except RuneError as error:
        if socket.client_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(problem_response(problem_document(error)))


EVENTS_PER_TURN = 20
"""Events that are sent over a WebSocket before other tasks run."""


async def send_events(socket: WebSocket, subscriber: EventSubscription, still: StillValid | None) -> None:
    """Send events until there are no more, or the client has disconnected."""
    async with asyncio.timeout(None) as limit, aclosing(subscriber.pieces()) as pieces:
        timer = HeartbeatTimer(subscriber, limit)
        try:
            async for piece in pieces:
                await hold_authorized(still)
                for number, each in enumerate(piece or ()):
                    assert isinstance(each, EncodedEvent)
                    await timer.send(socket.send_text(each.data.decode()))
                    if number % EVENTS_PER_TURN == 0:
                        await asyncio.sleep(
                            0
                        )  # sending need not suspend, and then nothing notices a disconnect
                        if subscriber.disconnected:
                            return
        finally:
            timer.stop()
    if not subscriber.disconnected:
        with suppress(RuntimeError):
            await socket.close(1000)


async def _socket_disconnected(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


live = Resource("live")
_ID = re.compile(ID)

STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


class StreamQuery(QueryModel):
    """Options of a stream. `rollup` replaces the events inside splits by counts, sent a few times per second."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Start after the event with this number.")] = 0
    view: Literal["all", "rollup"] = "all"


@live.get(
    "/executions/{execution}/events",
    requires="view",
    responses={200: STREAM, 204: "The execution has ended and all events were received."},
)
async def follow_execution(
    execution: ExecutionId,
    query: Annotated[StreamQuery, Query()],
    server: Server,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the events of an execution.

    Events are numbered without gaps. A client that reconnects with the last `id` receives each exactly once."""
    await server.reader.accepted(execution)
    after = _start_after(last_event_id, query.after)
    return EventStream(server.feeds, execution, after, outer=query.view == "rollup")


@live.get("/events", requires="view", responses={200: STREAM})
async def follow_executions(server: Server, caller: Caller) -> Response:
    """Stream changes of all executions.

    Sends an event when an execution starts, changes its status or ends. Earlier changes are not repeated; read the
    list of executions."""
    return FleetStream(server.fleet, server.streams, caller)


def _start_after(last: str | None, after: int) -> int:
    if last is None or not last.strip():
        return after
    if not (last.isascii() and last.isdecimal() and len(last) < 16):
        raise ApiError("Last-Event-ID: must be the number of an event", code="BAD_HEADER")
    return int(last)


class FleetStream(Response):
    """The changes of all executions as server-sent events."""

    def __init__(self, fleet: FleetFeed, slots: StreamSlots, principal: Principal) -> None:
        self.background = None
        self.status_code = 200
        self._fleet = fleet
        self._slots = slots
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slots.held(self._principal.name):
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscriber = FleetSubscription(self._fleet, self._principal.sees)
        # Subscribe before the response starts, so that the client misses no change after its first byte.
        self._fleet.enter(subscriber)
        try:
            await stream(subscriber, scope, receive, send)
        finally:
            self._fleet.leave(subscriber)


@live.router.websocket("/executions/{execution}/events", dependencies=[requires("view")])
async def follow_socket(socket: WebSocket, server: Server) -> None:
    """Sends the events of an execution over a WebSocket."""
    after, execution = socket.query_params.get("after", "0"), socket.path_params["execution"]
    if not (after.isascii() and after.isdecimal() and len(after) < 16):
        raise ApiError("query: `after` must be the number of an event", code="BAD_QUERY")
    if not _ID.fullmatch(execution):
        raise ExecutionNotFoundError(f"no execution has the id {execution[:128]}")
    await serve_socket(socket, server.feeds, execution, int(after), socket.scope.get("still"))
