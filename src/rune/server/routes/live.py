"""Live: executions as they happen, over server-sent events or a WebSocket."""

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
    """From where on, and how much. `rollup`: of splits only counts, a few times a second."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Begin behind the event with this number.")] = 0
    view: Literal["all", "rollup"] = "all"


@live(
    "GET",
    "/executions/{execution}/events",
    "Follow an execution",
    need="view",
    query=StreamQuery,
    answer=str,
    answers=EVENTS,
    also={204: "It has ended and everything was told."},
    headers=("Last-Event-ID",),
)
async def follow(call: RequestContext) -> Response:
    """Numbered without gaps: who comes back with the last `id` misses nothing and gets nothing twice."""
    execution = call.path["execution"]
    await call.master.reader.accepted(execution)
    after = _place(call.header("last-event-id"), call.query.after)
    return EventStream(call.master.watches, execution, after, outer=call.query.view == "rollup")


@live("GET", "/events", "Follow all executions", need="view", answer=str, answers=EVENTS)
async def follow_all(call: RequestContext) -> Response:
    """One event when an execution begins, changes its status or ends. What was missed is in the list."""
    return FleetStream(call.master.fleet, call.principal)


def _place(last: str | None, after: int) -> int:
    if last is None or not last.strip():
        return after
    if not (last.isascii() and last.isdecimal() and len(last) < 16):
        raise ApiError("Last-Event-ID: the number of an event", code="BAD_HEADER")
    return int(last)


class FleetStream(Response):
    """The executions of everybody as server-sent events."""

    def __init__(self, fleet: FleetFeed, principal: Principal) -> None:
        self.background = None
        self.status_code = 200
        self._fleet = fleet
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        follower = FleetSubscription(self._fleet, self._principal.sees)
        self._fleet.enter(follower)  # before the first word: what happens from here on is told
        try:
            await stream(follower, receive, authorize_route(scope, send))
        finally:
            self._fleet.leave(follower)


def add_sockets(router: APIRouter) -> None:
    """Put the WebSocket beside the stream of events."""

    async def follow_socket(socket: WebSocket) -> None:
        master: ServerContext = socket.app.state.master
        after: Any = socket.query_params.get("after", "0")
        execution = socket.path_params["execution"]
        if not (after.isascii() and after.isdecimal() and len(after) < 16):
            raise ApiError("`after` is the number of an event", code="BAD_QUERY")
        if not _ID.fullmatch(execution):
            raise ExecutionNotFoundError(f"no execution has the id {execution[:128]}")
        await serve_socket(socket, master.watches, execution, int(after), socket.scope.get("still"))

    follow_socket.need = "view"  # type: ignore[attr-defined]
    router.add_api_websocket_route(f"{PREFIX}/executions/{{execution}}/events", follow_socket)
