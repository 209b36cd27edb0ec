"""External resources of nodes: the HTTP client, the mail server and credential resolution.

The HTTP client is opened on first use and closed when the engine stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rune.nodes.credentials import TokenCache
from rune.ports.credentials import CredentialStore

if TYPE_CHECKING:
    from rune.nodes.io.http_client.client import Client
    from rune.nodes.io.http_client.ssrf import AddressGuard, Policy, Resolve


class Resources:
    """Resources of one worker process; all its calls share the connections."""

    def __init__(
        self,
        *,
        http_policy: Policy = "public_only",
        http_allow: Iterable[str] = (),
        http_per_host: int = 64,
        smtp_url: str = "",
        resolve: Resolve | None = None,
        credentials: CredentialStore | None = None,
    ) -> None:
        self.smtp_url = smtp_url
        self.credentials = credentials
        self.tokens = TokenCache()
        self._policy = http_policy
        self._allow = tuple(http_allow)
        self._per_host = max(1, http_per_host)
        self._resolve = resolve
        self._client: Client | None = None
        if self._allow:
            # Reject an invalid allow list at startup, not at the first call.
            self._guard()

    def _guard(self) -> AddressGuard:
        # Imported on first use: workers without HTTP calls do not load it.
        from rune.nodes.io.http_client.ssrf import AddressGuard  # noqa: PLC0415

        return AddressGuard(self._policy, self._allow, self._resolve)

    def http(self) -> Client:
        """Return the HTTP client of this process."""
        if self._client is None:
            # Imported on first use: loading it takes a quarter of a second.
            from rune.nodes.io.http_client.client import Client  # noqa: PLC0415

            self._client = Client(self._guard(), self._per_host)
        return self._client

    async def close(self) -> None:
        """Close the HTTP client if it was opened."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _NoResources(Resources):
    """Opens nothing: no engine would close it."""

    def http(self) -> Client:
        raise RuntimeError("this call has no external resources")


NO_RESOURCES: Resources = _NoResources()
"""For calls without external effects."""
