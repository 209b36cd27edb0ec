"""Routes for access control: the audit log, start limits and API keys.

Only the response that creates a key contains its secret; the server stores a digest.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.permissions import Role
from rune.ports.access import (
    MAX_LIMIT,
    NO_LIMITS,
    ApiKey,
    AuditEntry,
    AuditFilter,
    Limits,
    digest_of,
    new_key,
    of_key,
    of_workflow,
)
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.clock import iso
from rune.runtime.services.access import key_document
from rune.server.endpoints import PREFIX, RequestContext, Router
from rune.server.requests import Page
from rune.server.responses import ApiError, Reply, no_content
from rune.server.schemas import View

entries = Router("log")

Text = Annotated[str, Meta(min_length=1, max_length=300)]
limits = Router("workflows")
keys = Router("keys")
MAX_EXPIRES_IN_S = 10 * 366 * 24 * 3600
Rate = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,5}/[smh]$", description="Starts per second, minute or hour, such as `100/m`."
    ),
]
Count = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Scope = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_*-]{1,128}$", description="The id of a workflow; `*` matches any characters."),
]


class LogQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of the audit log. `action` may be a whole group: `workflow` as well as `workflow.deploy`."""

    actor: Text | None = None
    action: Text | None = None
    target: Text | None = None


class EntryView(View, frozen=True, kw_only=True):
    """A requested change. `outcome` is `asked`; a rejected request has a second entry whose outcome is the error
    code."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str]
    outcome: str


class EntryPage(View, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    entries: list[EntryView]
    next: str | None


def entry_view(entry: AuditEntry) -> EntryView:
    return EntryView(
        number=entry.number,
        at=iso(entry.at) or "",
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        details=entry.details,
        outcome=entry.outcome,
    )


@entries(
    "GET", "/log", "List the audit log, newest first", permission="admin", query=LogQuery, response=EntryPage
)
async def list_entries(call: RequestContext) -> Response:
    """Entries are never changed or removed. They contain no secret values."""
    query: LogQuery = call.query
    cursor = query.cursor
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise ApiError(f"`{cursor[:60]}` is not a cursor of this list", code="BAD_CURSOR")
    filter = AuditFilter(actor=query.actor, action=query.action, target=query.target)
    before = None if cursor is None else int(cursor)
    found = await call.server.engine.backend.log.read(filter, before=before, limit=query.limit + 1)
    page = found[: query.limit]
    following = str(page[-1].number) if len(found) > query.limit else None
    return Reply(EntryPage(entries=[entry_view(each) for each in page], next=following))


class KeyLimitsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start limits of a key. `burst` requires `rate`: the number of starts permitted at once."""

    rate: Rate | None = None
    burst: Count | None = None
    running: Count | None = None


class LimitsBody(KeyLimitsBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start limits of a workflow. A field that is left out is not limited."""

    waiting: Count | None = None


class LimitsView(View, frozen=True, kw_only=True):
    """Start limits; null means unlimited."""

    rate: str | None
    burst: int | None
    running: int | None
    waiting: int | None


def limits_view(found: Limits) -> LimitsView:
    return LimitsView(rate=found.rate, burst=found.burst, running=found.running, waiting=found.waiting)


def wanted_limits(body: KeyLimitsBody | None) -> Limits:
    return NO_LIMITS if body is None else Limits(**msgspec.structs.asdict(body))


async def known_limits(call: RequestContext) -> dict[str, Limits]:
    return await call.server.engine.backend.limits.all()


@limits(
    "GET",
    "/workflows/{workflow}/limits",
    "Get the start limits of a workflow",
    permission="view",
    response=LimitsView,
)
async def get_limits(call: RequestContext) -> Response:
    """Null fields are not limited."""
    workflow = call.path["workflow"]
    if not await call.server.engine.backend.workflows.aliases(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    return Reply(limits_view((await known_limits(call)).get(of_workflow(workflow), NO_LIMITS)))


@limits(
    "PUT",
    "/workflows/{workflow}/limits",
    "Replace the start limits of a workflow",
    permission="edit",
    body=LimitsBody,
    response=LimitsView,
    example={"rate": "10/s", "running": 20, "waiting": 1000},
)
async def put_limits(call: RequestContext) -> Response:
    """Applies from the next start, in a cluster after at most a second. An empty object removes all limits."""
    return Reply(
        limits_view(
            await call.server.services.limits.limit_workflow(call.path["workflow"], wanted_limits(call.body))
        )
    )


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new key. Without `workflows` it applies to all, without `expires_in` (seconds) it does not expire."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    role: Role
    workflows: Annotated[list[Scope], Meta(max_length=32)] = []
    expires_in: Annotated[int, Meta(ge=1, le=MAX_EXPIRES_IN_S)] | None = None
    limits: KeyLimitsBody | None = None


class KeyView(View, frozen=True, kw_only=True):
    """A key without its secret. `used_at` is accurate to a minute."""

    id: str
    name: str
    role: Role
    workflows: list[str]
    created_at: str
    created_by: str
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None
    limits: LimitsView


class NewKey(KeyView, frozen=True, kw_only=True):
    """A key with its secret, which is returned only once."""

    key: str


class KeyList(View, frozen=True, kw_only=True):
    """All keys, oldest first, including revoked ones."""

    keys: list[KeyView]


class Me(View, frozen=True, kw_only=True):
    """The principal of a request."""

    principal: str
    role: Role
    workflows: list[str]


def key_view(key: ApiKey, limits: Limits = NO_LIMITS) -> KeyView:
    return KeyView(**_key_fields(key, limits))


def _key_fields(key: ApiKey, limits: Limits) -> dict[str, Any]:
    return {**key_document(key), "limits": limits_view(limits)}


@keys(
    "POST",
    "/keys",
    "Create an API key",
    permission="admin",
    body=KeyBody,
    response=NewKey,
    status=201,
    example={
        "name": "nightly imports",
        "role": "runner",
        "workflows": ["import-*"],
        "limits": {"rate": "100/m"},
    },
)
async def create_key(call: RequestContext) -> Response:
    """Only this response contains the secret; the server stores a digest."""
    body: KeyBody = call.body
    made = new_key()
    expires = None if body.expires_in is None else call.server.clock.now() + body.expires_in * 1000
    limits = wanted_limits(body.limits)
    key = await call.server.services.access.create_key(
        made.id, digest_of(made.secret), body.name, body.role, tuple(body.workflows), expires, limits
    )
    location = {"Location": f"{PREFIX}/keys/{key.id}"}
    return Reply(NewKey(**_key_fields(key, limits), key=made.text), 201, location)


@keys("GET", "/keys", "List API keys", permission="admin", response=KeyList)
async def list_keys(call: RequestContext) -> Response:
    """Secrets are not included."""
    found = await call.server.engine.backend.keys.list()
    limits = await known_limits(call)
    return Reply(KeyList(keys=[key_view(each, limits.get(of_key(each.id), NO_LIMITS)) for each in found]))


@keys(
    "PUT",
    "/keys/{id}/limits",
    "Replace the start limits of an API key",
    permission="admin",
    body=KeyLimitsBody,
    response=LimitsView,
    example={"rate": "100/m", "running": 50},
)
async def put_key_limits(call: RequestContext) -> Response:
    """Applies from the next start, in a cluster after at most a second. An empty object removes all limits."""
    return Reply(
        limits_view(await call.server.services.limits.limit_key(call.path["id"], wanted_limits(call.body)))
    )


@keys("DELETE", "/keys/{id}", "Revoke an API key", permission="admin", status=204)
async def revoke_key(call: RequestContext) -> Response:
    """Rejects the key from now on and ends the event streams that use it."""
    await call.server.services.access.revoke_key(call.path["id"])
    return no_content()


@keys("GET", "/me", "Get the principal of the request", permission="view", response=Me)
async def get_me(call: RequestContext) -> Response:
    """Role and workflows of the API key."""
    me = call.principal
    return Reply(Me(principal=me.name, role=me.role, workflows=list(me.scopes)))
