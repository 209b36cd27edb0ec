"""Routes for credentials and their grants. No response contains the values of a credential."""

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
granting = Router("credentials")
Grantee = Annotated[
    str,
    Meta(
        pattern=r"^(everyone|queue|local|bootstrap|(key|trigger|workflow):[A-Za-z0-9_*-]{1,128})$",
        description="`everyone` (but the queue), `queue`, `local`, `bootstrap`, `key:ID`, `trigger:ID`, `workflow:ID`.",
    ),
]
Grantees = Annotated[list[Grantee], Meta(max_length=32)]


class CredentialBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new credential."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    type: Annotated[str, Meta(min_length=1, max_length=40)]
    values: dict[str, Any]
    hosts: Hosts = []

    def __repr__(self) -> str:
        return f"CredentialBody({self.name})"


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changed values; fields that are left out keep their values."""

    values: dict[str, Any] = {}
    hosts: Hosts | None = None

    def __repr__(self) -> str:
        return "RotateBody(…)"


class CredentialList(View, frozen=True, kw_only=True):
    """All credentials without values."""

    credentials: list[CredentialView]


@credentials(
    "POST",
    "/credentials",
    "Store a credential",
    permission="admin",
    body=CredentialBody,
    response=CredentialView,
    status=201,
    responses={409: "A credential with this name exists."},
    example={"name": "shop", "type": "bearer", "values": {"token": "…"}, "hosts": ["api.shop.example"]},
)
async def add_credential(call: RequestContext) -> Response:
    """The values are encrypted and never returned."""
    body: CredentialBody = call.body
    found = await call.server.services.credentials.add(body.name, body.type, body.values, tuple(body.hosts))
    return Reply(credential_view(found), 201, {"Location": f"{PREFIX}/credentials/{found.name}"})


@credentials(
    "GET", "/credentials", "List credentials without values", permission="edit", response=CredentialList
)
async def list_credentials(call: RequestContext) -> Response:
    """Ordered by name."""
    found = await call.server.engine.backend.credentials.list()
    return Reply(CredentialList(credentials=[credential_view(each) for each in found]))


@credentials(
    "GET",
    "/credentials/{credential}",
    "Get a credential without values",
    permission="edit",
    response=CredentialView,
)
async def get_credential(call: RequestContext) -> Response:
    """By name or id."""
    name = call.path["credential"]
    found = await call.server.engine.backend.credentials.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
    return Reply(credential_view(found))


@credentials(
    "PATCH",
    "/credentials/{credential}",
    "Rotate the values of a credential",
    permission="admin",
    body=RotateBody,
    response=CredentialView,
    example={"values": {"token": "…"}},
)
async def rotate_credential(call: RequestContext) -> Response:
    """Nodes use the new values from their next call."""
    body: RotateBody = call.body
    hosts = None if body.hosts is None else tuple(body.hosts)
    return Reply(
        credential_view(
            await call.server.services.credentials.rotate(call.path["credential"], body.values, hosts)
        )
    )


@credentials("DELETE", "/credentials/{credential}", "Delete a credential", permission="admin", status=204)
async def remove_credential(call: RequestContext) -> Response:
    """Nodes that use it fail from now on."""
    await call.server.services.credentials.remove(call.path["credential"])
    return no_content()


class GrantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Principals to grant the use of a credential to, and to withdraw it from."""

    grant: Grantees = []
    withdraw: Grantees = []


class GrantList(View, frozen=True, kw_only=True):
    """The principals that may use a credential."""

    granted: list[str]


@granting(
    "GET",
    "/credentials/{credential}/grants",
    "List the grants of a credential",
    permission="admin",
    response=GrantList,
)
async def list_grants(call: RequestContext) -> Response:
    """`everyone` unless the grants were changed."""
    name, backend = call.path["credential"], call.server.engine.backend
    found = await backend.credentials.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
    return Reply(GrantList(granted=sorted(await backend.grants.of(found.id))))


@granting(
    "POST",
    "/credentials/{credential}/grants",
    "Change the grants of a credential",
    permission="admin",
    body=GrantBody,
    response=GrantList,
    example={"grant": ["queue", "workflow:orders-*"], "withdraw": ["everyone"]},
)
async def change_grants(call: RequestContext) -> Response:
    """Applies to every use from now on, also by running executions."""
    body: GrantBody = call.body
    name, services = call.path["credential"], call.server.services
    granted: frozenset[str] = frozenset()
    # A call for an empty list would add an entry to the audit log.
    if body.grant or not body.withdraw:
        granted = await services.credentials.grant(name, tuple(body.grant))
    if body.withdraw:
        granted = await services.credentials.withdraw(name, tuple(body.withdraw))
    return Reply(GrantList(granted=sorted(granted)))
