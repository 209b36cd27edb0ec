"""Routes for live events, as server-sent events or over a WebSocket."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import Query, WebSocket
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rune.core.permissions import Principal
from rune.runtime.values import ExecutionNotFoundError
from rune.server.access.auth import authorize_route, requires
from rune.server.live.feed import StreamSlots
from rune.server.live.fleet_feed import FleetFeed, FleetSubscription
from rune.server.live.stream import EventStream, serve_socket, stream
from rune.server.responses import ApiError, documented
from rune.server.routing import ID, Caller, ExecutionId, LastEventId, QueryModel, Server, resource

live = resource("live")
_ID = re.compile(ID)

STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


class StreamQuery(QueryModel):
    """Options of a stream. `rollup` replaces the events inside splits by counts, sent a few times per second."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Start after the event with this number.")] = 0
    view: Literal["all", "rollup"] = "all"


@live.get(
    "/executions/{execution}/events",
    summary="Stream the events of an execution",
    dependencies=[requires("view")],
    response_class=Response,
    responses={
        200: STREAM,
        **documented({204: "The execution has ended and all events were received."}),
    },
)
async def follow_execution(
    execution: ExecutionId,
    query: Annotated[StreamQuery, Query()],
    server: Server,
    last_event_id: LastEventId = None,
) -> Response:
    """Events are numbered without gaps. A client that reconnects with the last `id` receives each exactly once."""
    await server.reader.accepted(execution)
    after = _start_after(last_event_id, query.after)
    return EventStream(server.feeds, execution, after, outer=query.view == "rollup")


@live.get(
    "/events",
    summary="Stream changes of all executions",
    dependencies=[requires("view")],
    response_class=Response,
    responses={200: STREAM},
)
async def follow_executions(server: Server, caller: Caller) -> Response:
    """Sends an event when an execution starts, changes its status or ends. Earlier changes are not repeated; read the
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
            await stream(subscriber, receive, authorize_route(scope, send))
        finally:
            self._fleet.leave(subscriber)


@live.websocket("/executions/{execution}/events", dependencies=[requires("view")])
async def follow_socket(socket: WebSocket, server: Server) -> None:
    """Sends the events of an execution over a WebSocket."""
    after, execution = socket.query_params.get("after", "0"), socket.path_params["execution"]
    if not (after.isascii() and after.isdecimal() and len(after) < 16):
        raise ApiError("query: `after` must be the number of an event", code="BAD_QUERY")
    if not _ID.fullmatch(execution):
        raise ExecutionNotFoundError(f"no execution has the id {execution[:128]}")
    await serve_socket(socket, server.feeds, execution, int(after), socket.scope.get("still"))
