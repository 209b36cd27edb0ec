"""Routes for access control: the audit log, start limits, API keys, the rights of the caller, and browser sessions.

Only the response that creates a key contains its secret; the server stores a digest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query, Request
from pydantic import Field

from rune.api.access import EntryPage, EntryView, KeyList, KeyView, LimitsView, Me, NewKey
from rune.core.permissions import LOCAL_PRINCIPAL, RIGHTS, Principal, Role
from rune.ports.access import (
    MAX_LIMIT,
    NO_LIMITS,
    ApiKey,
    AuditEntry,
    AuditFilter,
    Limits,
    Session,
    digest_of,
    new_key,
    of_key,
    of_workflow,
)
from rune.ports.clock import iso
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.services.access import key_document
from rune.server.auth import ApiKeyAuth, set_cookie
from rune.server.context import ServerContext
from rune.server.resource import Resource, example
from rune.server.responses import ApiError, Created, NoContent, Reply
from rune.server.routing import PREFIX, Caller, JsonBody, KeyId, Omittable, Page, Server, WorkflowId

entries = Resource("audit log")

Text = Annotated[str, Field(min_length=1, max_length=300)]
limits = Resource("workflows")
keys = Resource("keys")
MAX_EXPIRES_IN_S = 10 * 366 * 24 * 3600
Rate = Annotated[
    str,
    Field(
        pattern=r"^[1-9][0-9]{0,5}/[smh]$", description="Starts per second, minute or hour, such as `100/m`."
    ),
]
Count = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Scope = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_*-]{1,128}$", description="The id of a workflow; `*` matches any characters."
    ),
]

session = Resource("session")


class LogQuery(Page):
    """Filters of the audit log. `action` may be a whole group: `workflow` as well as `workflow.deploy`. `after`, the
    number of an entry or 0, selects the entries behind it, oldest first: whoever repeats this with the last number
    follows the log."""

    after: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None

    actor: Omittable[Text] = None
    action: Omittable[Text] = None
    target: Omittable[Text] = None


def entry_view(entry: AuditEntry) -> EntryView:
    return EntryView(
        number=entry.number,
        at=iso(entry.at) or "",
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        details=entry.details,
        outcome=entry.outcome,
        address=entry.address,
        request_id=entry.request,
    )


@entries.get("/log", requires="admin", hidden=True)  # its name before version 0.2
@entries.get("/audit-log", requires="admin")
async def list_audit_log(query: Annotated[LogQuery, Query()], server: Server) -> Reply[EntryPage]:
    """List the audit log, newest first.

    Entries are never changed or removed. They contain no secret values."""
    cursor = query.cursor
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise ApiError(f"`{cursor[:60]}` is not a cursor of this list", code="BAD_CURSOR")
    filter = AuditFilter(actor=query.actor, action=query.action, target=query.target)
    place = None if cursor is None else int(cursor)
    log, limit = server.engine.backend.log, query.limit + 1
    if query.after is None:
        found = await log.read(filter, before=place, limit=limit)
    else:
        found = await log.follow(query.after if place is None else place, filter, limit=limit)
    page = found[: query.limit]
    following = str(page[-1].number) if len(found) > query.limit else None
    return Reply(EntryPage(entries=[entry_view(each) for each in page], next=following))


class KeyLimitsBody(JsonBody):
    """Start limits of a key. `burst` requires `rate`: the number of starts permitted at once."""

    rate: Rate | None = None
    burst: Count | None = None
    running: Count | None = None


class LimitsBody(KeyLimitsBody):
    """Start limits of a workflow. A field that is left out is not limited."""

    waiting: Count | None = None


def limits_view(found: Limits) -> LimitsView:
    return LimitsView(rate=found.rate, burst=found.burst, running=found.running, waiting=found.waiting)


def wanted_limits(body: KeyLimitsBody | None) -> Limits:
    return NO_LIMITS if body is None else Limits(**body.model_dump())


async def known_limits(server: ServerContext) -> dict[str, Limits]:
    return await server.engine.backend.limits.all()


@limits.get("/workflows/{workflow}/limits", requires="view")
async def get_workflow_limits(workflow: WorkflowId, server: Server) -> Reply[LimitsView]:
    """Get the start limits of a workflow.

    Null fields are not limited."""
    if not await server.engine.backend.workflows.aliases(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    return Reply(limits_view((await known_limits(server)).get(of_workflow(workflow), NO_LIMITS)))


@limits.put("/workflows/{workflow}/limits", requires="edit")
async def put_workflow_limits(
    workflow: WorkflowId,
    body: Annotated[
        LimitsBody, Body(openapi_examples=example({"rate": "10/s", "running": 20, "waiting": 1000}))
    ],
    server: Server,
) -> Reply[LimitsView]:
    """Replace the start limits of a workflow.

    Applies from the next start, in a cluster after at most a second. An empty object removes all limits."""
    return Reply(limits_view(await server.services.limits.limit_workflow(workflow, wanted_limits(body))))


class KeyBody(JsonBody):
    """A new key. Without `workflows` it applies to all, without `expires_in` (seconds) it does not expire."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    role: Role
    workflows: Annotated[list[Scope], Field(max_length=32)] = Field(default=[])
    expires_in: Annotated[int, Field(ge=1, le=MAX_EXPIRES_IN_S)] | None = None
    limits: KeyLimitsBody | None = None


def key_view(key: ApiKey, limits: Limits = NO_LIMITS) -> KeyView:
    return KeyView(**_key_fields(key, limits))


def _key_fields(key: ApiKey, limits: Limits) -> dict[str, Any]:
    return {**key_document(key), "limits": limits_view(limits)}


@keys.post("/keys", requires="admin")
async def create_key(
    body: Annotated[
        KeyBody,
        Body(
            openapi_examples=example(
                {
                    "name": "nightly imports",
                    "role": "runner",
                    "workflows": ["import-*"],
                    "limits": {"rate": "100/m"},
                }
            )
        ),
    ],
    server: Server,
) -> Created[NewKey]:
    """Create an API key.

    Only this response contains the secret; the server stores a digest."""
    made = new_key()
    expires = None if body.expires_in is None else server.clock.now() + body.expires_in * 1000
    limits = wanted_limits(body.limits)
    key = await server.services.access.create_key(
        made.id, digest_of(made.secret), body.name, body.role, tuple(body.workflows), expires, limits
    )
    location = {"Location": f"{PREFIX}/keys/{key.id}"}
    return Created(NewKey(**_key_fields(key, limits), key=made.text), location)


@keys.get("/keys", requires="admin")
async def list_keys(server: Server) -> Reply[KeyList]:
    """List API keys.

    Secrets are not included."""
    found = await server.engine.backend.keys.list()
    limits = await known_limits(server)
    return Reply(KeyList(keys=[key_view(each, limits.get(of_key(each.id), NO_LIMITS)) for each in found]))


@keys.put("/keys/{id}/limits", requires="admin")
async def put_key_limits(
    id: KeyId,
    body: Annotated[KeyLimitsBody, Body(openapi_examples=example({"rate": "100/m", "running": 50}))],
    server: Server,
) -> Reply[LimitsView]:
    """Replace the start limits of an API key.

    Applies from the next start, in a cluster after at most a second. An empty object removes all limits."""
    return Reply(limits_view(await server.services.limits.limit_key(id, wanted_limits(body))))


@keys.delete("/keys/{id}", requires="admin")
async def revoke_key(id: KeyId, server: Server) -> NoContent:
    """Revoke an API key.

    Rejects the key from now on and ends the event streams that use it."""
    await server.services.access.revoke_key(id)
    return NoContent()


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


@session.get("/me", requires="self")
async def get_me(request: Request, caller: Caller) -> Reply[Me]:
    """Get the principal of the request.

    Role, rights and workflows of the API key or of the session."""
    return Reply(me_view(caller, request.scope.get("session")))


@session.post("/session", requires="self", responses={403: "The request was authenticated by a session."})
async def create_session(request: Request, server: Server, caller: Caller) -> Reply[Me]:
    """Exchange an API key for a session cookie.

    Send the key as usual, in `Authorization`. The cookie is valid for 12 hours and cannot be read by scripts. A
    server without keys requires no session and sets no cookie."""
    if request.scope.get("session") is not None:
        raise ApiError("a session is created with an API key, not with another session", code="FORBIDDEN")
    gate = request.app.state.gate
    proof = await gate.proof_of(caller) if isinstance(gate, ApiKeyAuth) else None
    if proof is None or gate.sessions is None:
        return Reply(me_view(caller, None))
    async with server.engine.services.access.audit_log.record("session.create", caller.name):
        token, made = await gate.sessions.create(caller.name, proof)
    response = Reply(me_view(caller, made))
    set_cookie(request, response, token)
    return response


@session.delete("/session", requires="self")
async def end_session(request: Request, server: Server) -> NoContent:
    """End the session of the request.

    Ends its event streams too. Without a session nothing changes."""
    current: Session | None = request.scope.get("session")
    response = NoContent()
    if current is not None:
        async with server.engine.services.access.audit_log.record("session.end", current.principal):
            await request.app.state.gate.sessions.end(current)
        set_cookie(request, response, "")
    return response
