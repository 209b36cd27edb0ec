"""The world: what nodes reach the outside through. Opened at first use, closed when the engine stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rune.nodes.credentials import TokenCache
from rune.ports.credentials import CredentialStore

if TYPE_CHECKING:
    from rune.nodes.io.http_client.client import Client
    from rune.nodes.io.http_client.ssrf import AddressGuard, Policy, Resolve


class Resources:
    """One for each worker process, so that connections are shared by all calls it makes."""

    def __init__(
        self,
        *,
        http_policy: Policy = "public_only",
        http_allow: Iterable[str] = (),
        http_per_host: int = 64,
        smtp_url: str = "",
        resolve: Resolve | None = None,
        secret: CredentialStore | None = None,
    ) -> None:
        self.smtp_url = smtp_url
        self.secret = secret  # where credentials are resolved
        self.tokens = TokenCache()
        self._policy = http_policy
        self._allow = tuple(http_allow)
        self._per_host = max(1, http_per_host)
        self._resolve = resolve
        self._client: Client | None = None
        if self._allow:
            self._guard()  # a list that means nothing is noticed at the start, not at the first call

    def _guard(self) -> AddressGuard:
        from rune.nodes.io.http_client.ssrf import AddressGuard  # noqa: PLC0415 - whoever calls nobody does not load it

        return AddressGuard(self._policy, self._allow, self._resolve)

    def http(self) -> Client:
        """The client for HTTP."""
        if self._client is None:
            from rune.nodes.io.http_client.client import Client  # noqa: PLC0415 - a quarter of a second

            self._client = Client(self._guard(), self._per_host)
        return self._client

    async def close(self) -> None:
        """Close what was opened."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _NoResources(Resources):
    """Has nobody to close it, so nothing is opened."""

    def http(self) -> Client:
        raise RuntimeError("this call was given no world to reach")


NO_RESOURCES: Resources = _NoResources()
"""For calls that reach nothing."""
