"""Keys of the API: made, listed and revoked by admins. A secret is shown once, to whoever asked for it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.rights import Role
from rune.master.operation import PREFIX, Call, Resource
from rune.master.reply import Reply, no_content
from rune.master.routes.limits import KeyLimitsBody, LimitsView, known_limits, limits_view, wanted_limits
from rune.master.views import View
from rune.ports.keys import Key, digest_of, new_key
from rune.ports.limits import NONE, Limits, of_key
from rune.runtime.accessdesk import key_document

keys = Resource("keys")

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


def key_view(key: Key, limits: Limits = NONE) -> KeyView:
    """A key as anybody may see it who may see keys."""
    return KeyView(**_said(key, limits))


def _said(key: Key, limits: Limits) -> dict[str, Any]:
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
async def create_key(call: Call) -> Response:
    """Its secret is in this answer and nowhere else: what is kept is a digest."""
    body: KeyBody = call.body
    made = new_key()
    expires = None if body.expires_in is None else call.master.clock.now() + body.expires_in * 1000
    limits = wanted_limits(body.limits)
    key = await call.master.desk.create_key(
        made.id, digest_of(made.secret), body.name, body.role, tuple(body.workflows), expires, limits
    )
    place = {"Location": f"{PREFIX}/keys/{key.id}"}
    return Reply(NewKey(**_said(key, limits), key=made.text), 201, place)


@keys("GET", "/keys", "List the keys of the API", need="admin", answer=KeyList)
async def list_keys(call: Call) -> Response:
    """Without secrets."""
    found = await call.master.engine.backend.keys.list()
    limits = await known_limits(call)
    return Reply(KeyList(keys=[key_view(each, limits.get(of_key(each.id), NONE)) for each in found]))


@keys(
    "PUT",
    "/keys/{id}/limits",
    "Limit the starts of a key",
    need="admin",
    body=KeyLimitsBody,
    answer=LimitsView,
    example={"rate": "100/m", "running": 50},
)
async def put_key_limits(call: Call) -> Response:
    """From its next start on; other processes of a cluster follow within a second. An empty object lifts all."""
    return Reply(limits_view(await call.master.desk.limit_key(call.path["id"], wanted_limits(call.body))))


@keys("DELETE", "/keys/{id}", "Revoke a key of the API", need="admin", status=204)
async def revoke_key(call: Call) -> Response:
    """It opens nothing from then on, and streams that were opened with it are told nothing more."""
    await call.master.desk.revoke_key(call.path["id"])
    return no_content()


@keys("GET", "/me", "Who asks, and what they may", need="view", answer=Me)
async def get_me(call: Call) -> Response:
    """The principal of the key that was sent."""
    me = call.principal
    return Reply(Me(principal=me.name, role=me.role, workflows=list(me.scopes)))
