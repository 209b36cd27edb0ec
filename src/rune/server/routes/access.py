"""The log: who changed what.

Limits on the starts of a workflow.

Keys of the API: made, listed and revoked by admins. A secret is shown once, to whoever asked for it.
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
from rune.runtime.queries.history import iso
from rune.runtime.services.access import key_document
from rune.server.endpoints import PREFIX, RequestContext, Router
from rune.server.requests import Page
from rune.server.responses import ApiError, Reply, no_content
from rune.server.schemas import View

entries = Router("log")

Text = Annotated[str, Meta(min_length=1, max_length=300)]


class LogQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries are wanted. `action` may be its first word: `workflow` or `workflow.deploy`."""

    actor: Text | None = None
    action: Text | None = None
    target: Text | None = None


class EntryView(View, frozen=True, kw_only=True):
    """Somebody wanted something to be changed. `outcome` is `asked`; what was refused has a second entry, with the code
    of the refusal."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str]
    outcome: str


class EntryPage(View, frozen=True, kw_only=True):
    """Entries, newest first."""

    entries: list[EntryView]
    next: str | None


def entry_view(entry: AuditEntry) -> EntryView:
    """An entry as it is told."""
    return EntryView(
        number=entry.number,
        at=iso(entry.at) or "",
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        details=entry.details,
        outcome=entry.outcome,
    )


@entries("GET", "/log", "Who changed what, newest first", need="admin", query=LogQuery, answer=EntryPage)
async def list_entries(call: RequestContext) -> Response:
    """Entries are never changed and never removed, and hold no values."""
    query: LogQuery = call.query
    cursor = query.cursor
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise ApiError(f"`{cursor[:60]}` is no cursor of this list", code="BAD_CURSOR")
    wanted = AuditFilter(actor=query.actor, action=query.action, target=query.target)
    before = None if cursor is None else int(cursor)
    found = await call.master.engine.backend.log.read(wanted, before=before, limit=query.limit + 1)
    page = found[: query.limit]
    following = str(page[-1].number) if len(found) > query.limit else None
    return Reply(EntryPage(entries=[entry_view(each) for each in page], next=following))


limits = Router("workflows")

Rate = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,5}/[smh]$", description="So many per second, minute or hour: `100/m`.")
]
Count = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]


class KeyLimitsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the starts of a key are held to. `burst` belongs to a `rate`: how many may come at once."""

    rate: Rate | None = None
    burst: Count | None = None
    running: Count | None = None


class LimitsBody(KeyLimitsBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the starts of a workflow are held to. What is left out is not limited."""

    waiting: Count | None = None


class LimitsView(View, frozen=True, kw_only=True):
    """Limits; null where there is none."""

    rate: str | None
    burst: int | None
    running: int | None
    waiting: int | None


def limits_view(found: Limits) -> LimitsView:
    """Limits as they are shown."""
    return LimitsView(rate=found.rate, burst=found.burst, running=found.running, waiting=found.waiting)


def wanted_limits(body: KeyLimitsBody | None) -> Limits:
    """Limits as somebody wants them."""
    return NO_LIMITS if body is None else Limits(**msgspec.structs.asdict(body))


async def known_limits(call: RequestContext) -> dict[str, Limits]:
    """All limits there are."""
    return await call.master.engine.backend.limits.all()


@limits("GET", "/workflows/{workflow}/limits", "The limits of a workflow", need="view", answer=LimitsView)
async def get_limits(call: RequestContext) -> Response:
    """What its starts are held to."""
    workflow = call.path["workflow"]
    if not await call.master.engine.backend.library.aliases(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    return Reply(limits_view((await known_limits(call)).get(of_workflow(workflow), NO_LIMITS)))


@limits(
    "PUT",
    "/workflows/{workflow}/limits",
    "Limit the starts of a workflow",
    need="edit",
    body=LimitsBody,
    answer=LimitsView,
    example={"rate": "10/s", "running": 20, "waiting": 1000},
)
async def put_limits(call: RequestContext) -> Response:
    """From the next start on; other processes of a cluster follow within a second. An empty object lifts all."""
    return Reply(
        limits_view(
            await call.master.services.limits.limit_workflow(call.path["workflow"], wanted_limits(call.body))
        )
    )


keys = Router("keys")

LONGEST = 10 * 366 * 24 * 3600
Scope = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*-]{1,128}$", description="A workflow; `*` for anything.")]


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. Without `workflows` it is for all of them, without `expires_in` (seconds) it does not end."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    role: Role
    workflows: Annotated[list[Scope], Meta(max_length=32)] = []
    expires_in: Annotated[int, Meta(ge=1, le=LONGEST)] | None = None
    limits: KeyLimitsBody | None = None


class KeyView(View, frozen=True, kw_only=True):
    """A key, without its secret. `used_at` may be a minute behind."""

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
    """A key with what it opens by. This is the only time that it is told."""

    key: str


class KeyList(View, frozen=True, kw_only=True):
    """All keys, the oldest first, revoked ones too."""

    keys: list[KeyView]


class Me(View, frozen=True, kw_only=True):
    """Who asks."""

    principal: str
    role: Role
    workflows: list[str]


def key_view(key: ApiKey, limits: Limits = NO_LIMITS) -> KeyView:
    """A key as anybody may see it who may see keys."""
    return KeyView(**_said(key, limits))


def _said(key: ApiKey, limits: Limits) -> dict[str, Any]:
    return {**key_document(key), "limits": limits_view(limits)}


@keys(
    "POST",
    "/keys",
    "Make a key of the API",
    need="admin",
    body=KeyBody,
    answer=NewKey,
    status=201,
    example={
        "name": "nightly imports",
        "role": "runner",
        "workflows": ["import-*"],
        "limits": {"rate": "100/m"},
    },
)
async def create_key(call: RequestContext) -> Response:
    """Its secret is in this answer and nowhere else: what is kept is a digest."""
    body: KeyBody = call.body
    made = new_key()
    expires = None if body.expires_in is None else call.master.clock.now() + body.expires_in * 1000
    limits = wanted_limits(body.limits)
    key = await call.master.services.access.create_key(
        made.id, digest_of(made.secret), body.name, body.role, tuple(body.workflows), expires, limits
    )
    place = {"Location": f"{PREFIX}/keys/{key.id}"}
    return Reply(NewKey(**_said(key, limits), key=made.text), 201, place)


@keys("GET", "/keys", "List the keys of the API", need="admin", answer=KeyList)
async def list_keys(call: RequestContext) -> Response:
    """Without secrets."""
    found = await call.master.engine.backend.keys.list()
    limits = await known_limits(call)
    return Reply(KeyList(keys=[key_view(each, limits.get(of_key(each.id), NO_LIMITS)) for each in found]))


@keys(
    "PUT",
    "/keys/{id}/limits",
    "Limit the starts of a key",
    need="admin",
    body=KeyLimitsBody,
    answer=LimitsView,
    example={"rate": "100/m", "running": 50},
)
async def put_key_limits(call: RequestContext) -> Response:
    """From its next start on; other processes of a cluster follow within a second. An empty object lifts all."""
    return Reply(
        limits_view(await call.master.services.limits.limit_key(call.path["id"], wanted_limits(call.body)))
    )


@keys("DELETE", "/keys/{id}", "Revoke a key of the API", need="admin", status=204)
async def revoke_key(call: RequestContext) -> Response:
    """It opens nothing from then on, and streams that were opened with it are told nothing more."""
    await call.master.services.access.revoke_key(call.path["id"])
    return no_content()


@keys("GET", "/me", "Who asks, and what they may", need="view", answer=Me)
async def get_me(call: RequestContext) -> Response:
    """The principal of the key that was sent."""
    me = call.principal
    return Reply(Me(principal=me.name, role=me.role, workflows=list(me.scopes)))
