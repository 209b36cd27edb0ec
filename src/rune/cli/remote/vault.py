"""The credentials of a server elsewhere: values go over and never come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.cli.remote.asking import client, epoch
from rune.client import AsyncClient, Refusal
from rune.client.credentials import Credential
from rune.ports.secret import Listing
from rune.settings import Settings


class RemoteVault:
    """What commands ask of credentials, asked of a server."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def credentials(self) -> tuple[Listing, ...]:
        """All of them, without values."""
        return tuple(_listing(each) for each in await self._client.credentials())

    async def show(self, reference: str) -> Listing:
        """One of them, without values."""
        return _listing(await self._client.credential(reference))

    async def add_credential(
        self, name: str, type: str, values: dict[str, Any], hosts: Sequence[str] = (), id: str | None = None
    ) -> Listing:
        """The server names it itself."""
        return _listing(await self._client.add_credential(name, type, values, hosts=hosts))

    async def rotate_credential(
        self, reference: str, values: dict[str, Any], hosts: Sequence[str] | None = None
    ) -> Listing:
        """What is not given stays."""
        return _listing(await self._client.rotate_credential(reference, values, hosts=hosts))

    async def remove_credential(self, reference: str) -> Listing:
        """What it was."""
        found = await self.show(reference)
        await self._client.remove_credential(found.id)
        return found

    async def grant_credential(self, reference: str, whom: Sequence[str]) -> frozenset[str]:
        """Who may use it, afterwards."""
        return frozenset(await self._client.grant(reference, whom))

    async def withdraw_credential(self, reference: str, whom: Sequence[str]) -> frozenset[str]:
        """Who may use it, afterwards."""
        return frozenset(await self._client.grant(reference, withdraw=whom))

    async def granted(self, reference: str) -> list[str] | None:
        """Who may use it; None for those who may not know."""
        try:
            return await self._client.granted(reference)
        except Refusal as refused:
            if refused.status != 403:
                raise
            return None


@asynccontextmanager
async def remote_vault(settings: Settings) -> AsyncIterator[RemoteVault]:
    """The credentials of the server that the settings name."""
    async with client(settings) as opened:
        yield RemoteVault(opened)


def _listing(each: Credential) -> Listing:
    return Listing(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=tuple(each.fields),
        hosts=tuple(each.hosts),
        key=each.key,
        created_at=epoch(each.created_at),
        changed_at=epoch(each.changed_at),
    )
