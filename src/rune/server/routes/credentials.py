"""Credentials: values go in and never come out.

Grants: who may use a credential.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.ports.credentials import CredentialNotFoundError
from rune.server.endpoints import PREFIX, RequestContext, Router
from rune.server.responses import Reply, no_content
from rune.server.schemas import CredentialView, View, credential_view

credentials = Router("credentials")

Hosts = Annotated[list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=100)]


class CredentialBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential to be stored."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    type: Annotated[str, Meta(min_length=1, max_length=40)]
    values: dict[str, Any]
    hosts: Hosts = []

    def __repr__(self) -> str:
        return f"CredentialBody({self.name})"


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values; what is not given stays."""

    values: dict[str, Any] = {}
    hosts: Hosts | None = None

    def __repr__(self) -> str:
        return "RotateBody(…)"


class CredentialList(View, frozen=True, kw_only=True):
    """All credentials, without values."""

    credentials: list[CredentialView]


@credentials(
    "POST",
    "/credentials",
    "Store a credential",
    need="admin",
    body=CredentialBody,
    answer=CredentialView,
    status=201,
    also={409: "There is one of this name."},
    example={"name": "shop", "type": "bearer", "values": {"token": "…"}, "hosts": ["api.shop.example"]},
)
async def add_credential(call: RequestContext) -> Response:
    """The values are sealed, and shown to nobody."""
    body: CredentialBody = call.body
    found = await call.master.services.credentials.add(body.name, body.type, body.values, tuple(body.hosts))
    return Reply(credential_view(found), 201, {"Location": f"{PREFIX}/credentials/{found.name}"})


@credentials("GET", "/credentials", "List credentials, without values", need="edit", answer=CredentialList)
async def list_credentials(call: RequestContext) -> Response:
    """By name."""
    found = await call.master.engine.backend.secret.list()
    return Reply(CredentialList(credentials=[credential_view(each) for each in found]))


@credentials(
    "GET", "/credentials/{credential}", "One credential, without values", need="edit", answer=CredentialView
)
async def get_credential(call: RequestContext) -> Response:
    """By its name or id."""
    name = call.path["credential"]
    found = await call.master.engine.backend.secret.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
    return Reply(credential_view(found))


@credentials(
    "PATCH",
    "/credentials/{credential}",
    "Give a credential new values",
    need="admin",
    body=RotateBody,
    answer=CredentialView,
    example={"values": {"token": "…"}},
)
async def rotate_credential(call: RequestContext) -> Response:
    """Nodes use the new ones from their next call on."""
    body: RotateBody = call.body
    hosts = None if body.hosts is None else tuple(body.hosts)
    return Reply(
        credential_view(
            await call.master.services.credentials.rotate(call.path["credential"], body.values, hosts)
        )
    )


@credentials("DELETE", "/credentials/{credential}", "Forget a credential", need="admin", status=204)
async def remove_credential(call: RequestContext) -> Response:
    """Nodes that name it fail from then on."""
    await call.master.services.credentials.remove(call.path["credential"])
    return no_content()


granting = Router("credentials")

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
async def list_grants(call: RequestContext) -> Response:
    """`everyone` where nothing else was said."""
    name, backend = call.path["credential"], call.master.engine.backend
    found = await backend.secret.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
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
async def change_grants(call: RequestContext) -> Response:
    """It holds for every use from then on, also by executions that run already."""
    body: GrantBody = call.body
    name, services = call.path["credential"], call.master.services
    granted: frozenset[str] = frozenset()
    if body.grant or not body.withdraw:  # what is not asked for is not written down either
        granted = await services.credentials.grant(name, tuple(body.grant))
    if body.withdraw:
        granted = await services.credentials.withdraw(name, tuple(body.withdraw))
    return Reply(GrantList(granted=sorted(granted)))
