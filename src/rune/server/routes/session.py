"""Routes for the caller: its rights, and browser sessions."""

from __future__ import annotations

from typing import Literal

from fastapi import Request
from starlette.responses import Response

from rune.core.permissions import LOCAL_PRINCIPAL, RIGHTS, Principal, Role
from rune.ports.access import Session
from rune.runtime.clock import iso
from rune.server.auth import ApiKeyAuth, requires
from rune.server.responses import ApiError, Reply, documented, no_content
from rune.server.routing import Caller, Server, resource
from rune.server.schemas import View
from rune.server.sessions import set_cookie

session = resource("session")


class Me(View, frozen=True, kw_only=True):
    """The principal of a request, and how it was authenticated. `expires_at` is the end of its session."""

    principal: str
    role: Role
    rights: list[str]
    workflows: list[str]
    authentication: Literal["none", "key", "session"]
    expires_at: str | None


def me_view(caller: Principal, current: Session | None) -> Me:
    kind: Literal["none", "key", "session"] = "key" if current is None else "session"
    return Me(
        principal=caller.name,
        role=caller.role,
        rights=sorted(RIGHTS[caller.role]),
        workflows=list(caller.scopes),
        authentication="none" if caller is LOCAL_PRINCIPAL else kind,
        expires_at=None if current is None else iso(current.expires_at),
    )


@session.get(
    "/me",
    summary="Get the principal of the request",
    dependencies=[requires("self")],
    response_model=Me,
)
async def get_me(request: Request, caller: Caller) -> Response:
    """Role, rights and workflows of the API key or of the session."""
    return Reply(me_view(caller, request.scope.get("session")))


@session.post(
    "/session",
    summary="Exchange an API key for a session cookie",
    dependencies=[requires("self")],
    response_model=Me,
    responses=documented({403: "The request was authenticated by a session."}),
)
async def create_session(request: Request, server: Server, caller: Caller) -> Response:
    """Send the key as usual, in `Authorization`. The cookie is valid for 12 hours and cannot be read by scripts. A
    server without keys requires no session and sets no cookie."""
    if request.scope.get("session") is not None:
        raise ApiError("a session is created with an API key, not with another session", code="FORBIDDEN")
    gate = request.app.state.gate
    proof = await gate.proof_of(caller) if isinstance(gate, ApiKeyAuth) else None
    if proof is None or gate.sessions is None:
        return Reply(me_view(caller, None))
    async with server.services.access.audit_log.record("session.create", caller.name):
        token, made = await gate.sessions.create(caller.name, proof)
    response = Reply(me_view(caller, made))
    set_cookie(request, response, token)
    return response


@session.delete(
    "/session",
    summary="End the session of the request",
    dependencies=[requires("self")],
    status_code=204,
    response_class=Response,
)
async def end_session(request: Request) -> Response:
    """Ends its event streams too. Without a session nothing changes."""
    current: Session | None = request.scope.get("session")
    response = no_content()
    if current is not None:
        await request.app.state.gate.sessions.end(current)
        set_cookie(request, response, "")
    return response
