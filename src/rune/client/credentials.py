"""What clients ask of credentials. Values go in and never come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from rune.client.asking import Asking, AsyncAsking
from rune.client.calls import API, Call
from rune.client.models import Model


class Credential(Model, frozen=True, kw_only=True):
    """What is told of a credential: everything but its values."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    created_at: str
    changed_at: str
    key: str = ""


class CredentialList(Model, frozen=True, kw_only=True):
    """All of them."""

    credentials: list[Credential]


class Granted(Model, frozen=True, kw_only=True):
    """Who may use a credential."""

    granted: list[str]


def listed() -> Call[CredentialList]:
    return Call(method="GET", path=f"{API}/credentials", answer=CredentialList, repeatable=True)


def shown(name: str) -> Call[Credential]:
    return Call(method="GET", path=_path(name), answer=Credential, repeatable=True)


def added(name: str, type: str, values: dict[str, Any], hosts: Sequence[str]) -> Call[Credential]:
    body = msgspec.json.encode({"name": name, "type": type, "values": values, "hosts": list(hosts)})
    return Call(method="POST", path=f"{API}/credentials", answer=Credential, body=body)


def rotated(name: str, values: dict[str, Any], hosts: Sequence[str] | None) -> Call[Credential]:
    given = {"values": values} | ({} if hosts is None else {"hosts": list(hosts)})
    return Call(method="PATCH", path=_path(name), answer=Credential, body=msgspec.json.encode(given))


def removed(name: str) -> Call[None]:
    return Call(method="DELETE", path=_path(name), answer=None)


def grants(name: str) -> Call[Granted]:
    return Call(method="GET", path=f"{_path(name)}/grants", answer=Granted, repeatable=True)


def regranted(name: str, grant: Sequence[str], withdraw: Sequence[str]) -> Call[Granted]:
    body = msgspec.json.encode({"grant": list(grant), "withdraw": list(withdraw)})
    return Call(method="POST", path=f"{_path(name)}/grants", answer=Granted, body=body, repeatable=True)


def _path(name: str) -> str:
    return f"{API}/credentials/{quote(name, safe='')}"


class CredentialCalls:
    """Credentials, for the client that waits for one thing at a time."""

    def credentials(self: Asking) -> list[Credential]:
        """All of them by name, without values."""
        found: CredentialList = self._ask(listed())
        return found.credentials

    def credential(self: Asking, name: str) -> Credential:
        """One of them, by its name or id."""
        found: Credential = self._ask(shown(name))
        return found

    def add_credential(
        self: Asking, name: str, type: str, values: dict[str, Any], *, hosts: Sequence[str] = ()
    ) -> Credential:
        """Store one; `hosts` are the only ones that it is sent to."""
        found: Credential = self._ask(added(name, type, values, hosts))
        return found

    def rotate_credential(
        self: Asking, name: str, values: dict[str, Any], *, hosts: Sequence[str] | None = None
    ) -> Credential:
        """Give it new values; what is not given stays."""
        found: Credential = self._ask(rotated(name, values, hosts))
        return found

    def remove_credential(self: Asking, name: str) -> None:
        """Forget it."""
        self._ask(removed(name))

    def granted(self: Asking, name: str) -> list[str]:
        """Who may use it."""
        found: Granted = self._ask(grants(name))
        return found.granted

    def grant(
        self: Asking, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()
    ) -> list[str]:
        """Say who may use it from now on, and who no more; who may, afterwards."""
        found: Granted = self._ask(regranted(name, whom, withdraw))
        return found.granted


class AsyncCredentialCalls:
    """Credentials, for the client that waits for many things at once."""

    async def credentials(self: AsyncAsking) -> list[Credential]:
        """All of them by name, without values."""
        found: CredentialList = await self._ask(listed())
        return found.credentials

    async def credential(self: AsyncAsking, name: str) -> Credential:
        """One of them, by its name or id."""
        found: Credential = await self._ask(shown(name))
        return found

    async def add_credential(
        self: AsyncAsking, name: str, type: str, values: dict[str, Any], *, hosts: Sequence[str] = ()
    ) -> Credential:
        """Store one; `hosts` are the only ones that it is sent to."""
        found: Credential = await self._ask(added(name, type, values, hosts))
        return found

    async def rotate_credential(
        self: AsyncAsking, name: str, values: dict[str, Any], *, hosts: Sequence[str] | None = None
    ) -> Credential:
        """Give it new values; what is not given stays."""
        found: Credential = await self._ask(rotated(name, values, hosts))
        return found

    async def remove_credential(self: AsyncAsking, name: str) -> None:
        """Forget it."""
        await self._ask(removed(name))

    async def granted(self: AsyncAsking, name: str) -> list[str]:
        """Who may use it."""
        found: Granted = await self._ask(grants(name))
        return found.granted

    async def grant(
        self: AsyncAsking, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()
    ) -> list[str]:
        """Say who may use it from now on, and who no more; who may, afterwards."""
        found: Granted = await self._ask(regranted(name, whom, withdraw))
        return found.granted
