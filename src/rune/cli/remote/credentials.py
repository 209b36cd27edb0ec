"""Credentials of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rune.cli.remote.connection import RemoteService, epoch
from rune.client import ApiError
from rune.client.models import Credential
from rune.ports.credentials import CredentialSummary


class RemoteCredentialService(RemoteService):
    """The credential service of a server. Values are sent and never returned."""

    async def list(self) -> tuple[CredentialSummary, ...]:
        return tuple(credential_of(each) for each in await self._client.credentials())

    async def show(self, reference: str) -> CredentialSummary:
        return credential_of(await self._client.credential(reference))

    async def add(
        self,
        name: str,
        type: str,
        values: dict[str, Any],
        hosts: Sequence[str] = (),
        id: str | None = None,
        insecure: bool = False,
        grants: Sequence[str] = (),
    ) -> CredentialSummary:
        """Add a credential; the server chooses its id, `id` is ignored."""
        found = await self._client.add_credential(
            name, type, values, hosts=hosts, insecure=insecure, grants=grants
        )
        return credential_of(found)

    async def rotate(
        self,
        reference: str,
        values: dict[str, Any],
        hosts: Sequence[str] | None = None,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        """Replace the given values; the others stay."""
        found = await self._client.rotate_credential(reference, values, hosts=hosts, insecure=insecure)
        return credential_of(found)

    async def remove(self, reference: str) -> CredentialSummary:
        """Remove a credential and return its last summary."""
        found = await self.show(reference)
        await self._client.remove_credential(found.id)
        return found

    async def grant(self, reference: str, grantees: Sequence[str]) -> frozenset[str]:
        """Return the grants after the change."""
        return frozenset(await self._client.grant(reference, grantees))

    async def withdraw(self, reference: str, grantees: Sequence[str]) -> frozenset[str]:
        """Return the grants after the change."""
        return frozenset(await self._client.grant(reference, withdraw=grantees))

    async def granted(self, reference: str) -> Sequence[str] | None:
        """Return the grants of a credential; None if the API key may not read them."""
        try:
            return await self._client.granted(reference)
        except ApiError as refused:
            if refused.status != 403:
                raise
            return None


def credential_of(each: Credential) -> CredentialSummary:
    return CredentialSummary(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=tuple(each.fields),
        hosts=tuple(each.hosts),
        insecure=each.insecure,
        key=each.key,
        created_at=epoch(each.created_at),
        changed_at=epoch(each.changed_at),
    )
