"""Routes for live events, as server-sent events or over a WebSocket."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, WebSocket
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rune.core.permissions import Principal
from rune.runtime.values import ExecutionNotFoundError
from rune.server.auth import authorize_route
from rune.server.context import ServerContext
from rune.server.endpoints import ID, PREFIX, RequestContext, Router
from rune.server.live.fleet_feed import FleetFeed, FleetSubscription
from rune.server.live.stream import EventStream, serve_socket, stream
from rune.server.responses import ApiError

live = Router("live")

EVENTS = "text/event-stream"
_ID = re.compile(ID)


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a stream. `rollup` replaces the events inside splits by counts, sent a few times per second."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Start after the event with this number.")] = 0
    view: Literal["all", "rollup"] = "all"


@live(
    "GET",
    "/executions/{execution}/events",
    "Stream the events of an execution",
    permission="view",
    query=StreamQuery,
    response=str,
    response_type=EVENTS,
    responses={204: "The execution has ended and all events were received."},
    headers=("Last-Event-ID",),
)
async def follow(call: RequestContext) -> Response:
    """Events are numbered without gaps. A client that reconnects with the last `id` receives each exactly once."""
    execution = call.path["execution"]
    await call.server.reader.accepted(execution)
    after = _start_after(call.header("last-event-id"), call.query.after)
    return EventStream(call.server.feeds, execution, after, outer=call.query.view == "rollup")


@live(
    "GET",
    "/events",
    "Stream changes of all executions",
    permission="view",
    response=str,
    response_type=EVENTS,
)
async def follow_all(call: RequestContext) -> Response:
    """Sends an event when an execution starts, changes its status or ends. Earlier changes are not repeated; read the
    list of executions."""
    return FleetStream(call.server.fleet, call.principal)


def _start_after(last: str | None, after: int) -> int:
    if last is None or not last.strip():
        return after
    if not (last.isascii() and last.isdecimal() and len(last) < 16):
        raise ApiError("Last-Event-ID: must be the number of an event", code="BAD_HEADER")
    return int(last)


class FleetStream(Response):
    """The changes of all executions as server-sent events."""

    def __init__(self, fleet: FleetFeed, principal: Principal) -> None:
        self.background = None
        self.status_code = 200
        self._fleet = fleet
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscriber = FleetSubscription(self._fleet, self._principal.sees)
        # Subscribe before the response starts, so that the client misses no change after its first byte.
        self._fleet.enter(subscriber)
        try:
            await stream(subscriber, receive, authorize_route(scope, send))
        finally:
            self._fleet.leave(subscriber)


def add_sockets(router: APIRouter) -> None:
    """Add the WebSocket of an execution to a router."""

    async def follow_socket(socket: WebSocket) -> None:
        server: ServerContext = socket.app.state.server
        after: Any = socket.query_params.get("after", "0")
        execution = socket.path_params["execution"]
        if not (after.isascii() and after.isdecimal() and len(after) < 16):
            raise ApiError("query: `after` must be the number of an event", code="BAD_QUERY")
        if not _ID.fullmatch(execution):
            raise ExecutionNotFoundError(f"no execution has the id {execution[:128]}")
        await serve_socket(socket, server.feeds, execution, int(after), socket.scope.get("still"))

    follow_socket.permission = "view"  # type: ignore[attr-defined]
    router.add_api_websocket_route(f"{PREFIX}/executions/{{execution}}/events", follow_socket)
