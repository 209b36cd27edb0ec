"""Grants: who may use a credential."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.views import View
from rune.ports.secret import Missing

granting = Resource("credentials")

Whom = Annotated[
    str,
    Meta(
        pattern=r"^(everyone|queue|local|bootstrap|(key|trigger|workflow):[A-Za-z0-9_*-]{1,128})$",
        description="`everyone` (but the queue), `queue`, `local`, `bootstrap`, `key:ID`, `trigger:ID`, `workflow:ID`.",
    ),
]
List = Annotated[list[Whom], Meta(max_length=32)]


class GrantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may use it from now on, and who no more."""

    grant: List = []
    withdraw: List = []


class GrantList(View, frozen=True, kw_only=True):
    """Who may use a credential."""

    granted: list[str]


@granting(
    "GET", "/credentials/{credential}/grants", "Who may use a credential", need="admin", answer=GrantList
)
async def list_grants(call: Call) -> Response:
    """`everyone` where nothing else was said."""
    name, backend = call.path["credential"], call.master.engine.backend
    found = await backend.secret.find(name)
    if found is None:
        raise Missing(f"there is no credential `{name}`")
    return Reply(GrantList(granted=sorted(await backend.grants.of(found.id))))


@granting(
    "POST",
    "/credentials/{credential}/grants",
    "Say who may use a credential",
    need="admin",
    body=GrantBody,
    answer=GrantList,
    example={"grant": ["queue", "workflow:orders-*"], "withdraw": ["everyone"]},
)
async def change_grants(call: Call) -> Response:
    """It holds for every use from then on, also by executions that run already."""
    body: GrantBody = call.body
    name, desk = call.path["credential"], call.master.desk
    granted: frozenset[str] = frozenset()
    if body.grant or not body.withdraw:  # what is not asked for is not written down either
        granted = await desk.grant_credential(name, tuple(body.grant))
    if body.withdraw:
        granted = await desk.withdraw_credential(name, tuple(body.withdraw))
    return Reply(GrantList(granted=sorted(granted)))
