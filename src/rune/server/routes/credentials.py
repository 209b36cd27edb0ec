"""Routes for credentials and their grants. No response contains the values of a credential."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import Field

from rune.api.credentials import (
    CredentialList,
    CredentialTypeList,
    CredentialTypeView,
    CredentialUseList,
    CredentialUseView,
    CredentialView,
    GrantList,
)
from rune.ports.credentials import CredentialNotFoundError, described_types
from rune.runtime.services.credentials import credential_uses
from rune.server.resource import Resource, example
from rune.server.responses import Created, NoContent, Reply
from rune.server.routing import PREFIX, Caller, CredentialName, JsonBody, Server
from rune.server.schemas.credentials import credential_view

credentials = Resource("credentials")

Hosts = Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=100)]
granting = Resource("credentials")
Grantee = Annotated[
    str,
    Field(
        pattern=r"^(everyone|queue|local|bootstrap|(key|trigger|handler|workflow):[A-Za-z0-9_*-]{1,128})$",
        description="`everyone` (but the queue), `queue`, `local`, `bootstrap`, `key:ID`, `trigger:ID`, "
        "`handler:WORKFLOW`, `workflow:ID`.",
    ),
]
Grantees = Annotated[list[Grantee], Field(max_length=32)]


class CredentialBody(JsonBody):
    """A new credential."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    type: Annotated[str, Field(min_length=1, max_length=40)]
    values: dict[str, Any]
    hosts: Hosts = Field(
        default=[],
        description="Hosts that may receive it, `*.domain`, or `*` for any. Required, except for `smtp`.",
    )
    insecure: bool = Field(default=False, description="May be sent without TLS or to an unverified server.")
    grants: Grantees = Field(default=[], description="Default: the principal of this request.")

    def __repr__(self) -> str:
        return f"CredentialBody({self.name})"


class RotateBody(JsonBody):
    """Changed values; fields that are left out keep their values."""

    values: dict[str, Any] = Field(default={})
    hosts: Hosts | None = None
    insecure: bool | None = None

    def __repr__(self) -> str:
        return "RotateBody(…)"


@credentials.post("/credentials", requires="admin", responses={409: "A credential with this name exists."})
async def add_credential(
    body: Annotated[
        CredentialBody,
        Body(
            openapi_examples=example(
                {"name": "shop", "type": "bearer", "values": {"token": "…"}, "hosts": ["api.shop.example"]}
            )
        ),
    ],
    server: Server,
) -> Created[CredentialView]:
    """Store a credential.

    The values are encrypted and never returned."""
    found = await server.services.credentials.add(
        body.name,
        body.type,
        body.values,
        tuple(body.hosts),
        insecure=body.insecure,
        grants=tuple(body.grants),
    )
    return Created(credential_view(found), {"Location": f"{PREFIX}/credentials/{found.name}"})


@credentials.get("/credential-types", requires="view")
async def list_credential_types(server: Server) -> Reply[CredentialTypeList]:
    """List credential types.

    With the fields of each, for forms."""
    known = {each.name: each for each in server.engine.registry.catalogue.values()}
    return Reply(
        CredentialTypeList(
            credential_types=[
                CredentialTypeView(
                    **described,
                    node_types=[
                        name for name, each in known.items() if described["type"] in each.credential_types
                    ],
                )
                for described in described_types()
            ]
        )
    )


@credentials.get("/credentials", requires="edit")
async def list_credentials(server: Server) -> Reply[CredentialList]:
    """List credentials without values.

    Ordered by name."""
    found = await server.engine.backend.credentials.list()
    return Reply(CredentialList(credentials=[credential_view(each) for each in found]))


@credentials.get("/credentials/{credential}", requires="edit")
async def get_credential(credential: CredentialName, server: Server) -> Reply[CredentialView]:
    """Get a credential without values.

    By name or id."""
    name = credential
    found = await server.engine.backend.credentials.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
    return Reply(credential_view(found))


@credentials.get("/credentials/{credential}/uses", requires="edit")
async def list_credential_uses(
    credential: CredentialName, server: Server, caller: Caller
) -> Reply[CredentialUseList]:
    """List where a credential is used.

    In the latest versions of the workflows and in those with an alias. References by an expression are not found."""
    backend = server.engine.backend
    found = await backend.credentials.find(credential)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{credential}`")
    uses = credential_uses(found.id, found.name, backend.workflows, server.engine.plans, caller.sees)
    views = [
        CredentialUseView(
            workflow_id=each.workflow,
            name=each.name,
            version=each.version,
            aliases=list(each.aliases),
            nodes=list(each.nodes),
        )
        async for each in uses
    ]
    return Reply(CredentialUseList(uses=views))


@credentials.patch("/credentials/{credential}", requires="admin")
async def rotate_credential(
    credential: CredentialName,
    body: Annotated[RotateBody, Body(openapi_examples=example({"values": {"token": "…"}}))],
    server: Server,
) -> Reply[CredentialView]:
    """Rotate the values of a credential.

    Nodes use the new values from their next call."""
    hosts = None if body.hosts is None else tuple(body.hosts)
    found = await server.services.credentials.rotate(credential, body.values, hosts, body.insecure)
    return Reply(credential_view(found))


@credentials.delete("/credentials/{credential}", requires="admin")
async def remove_credential(credential: CredentialName, server: Server) -> NoContent:
    """Delete a credential.

    Nodes that use it fail from now on."""
    await server.services.credentials.remove(credential)
    return NoContent()


class GrantBody(JsonBody):
    """Principals to grant the use of a credential to, and to withdraw it from."""

    grant: Grantees = Field(default=[])
    withdraw: Grantees = Field(default=[])


@granting.get("/credentials/{credential}/grants", requires="admin")
async def list_grants(credential: CredentialName, server: Server) -> Reply[GrantList]:
    """List the grants of a credential.

    The principals and workflows that may use it."""
    name, backend = credential, server.engine.backend
    found = await backend.credentials.find(name)
    if found is None:
        raise CredentialNotFoundError(f"there is no credential `{name}`")
    return Reply(GrantList(granted=sorted(await backend.grants.of(found.id))))


@granting.post("/credentials/{credential}/grants", requires="admin")
async def change_grants(
    credential: CredentialName,
    body: Annotated[
        GrantBody,
        Body(openapi_examples=example({"grant": ["queue", "workflow:orders-*"], "withdraw": ["everyone"]})),
    ],
    server: Server,
) -> Reply[GrantList]:
    """Change the grants of a credential.

    Applies to every use from now on, also by running executions."""
    name, services = credential, server.services
    granted: frozenset[str] = frozenset()
    # A call for an empty list would add an entry to the audit log.
    if body.grant or not body.withdraw:
        granted = await services.credentials.grant(name, tuple(body.grant))
    if body.withdraw:
        granted = await services.credentials.withdraw(name, tuple(body.withdraw))
    return Reply(GrantList(granted=sorted(granted)))
