"""The guard: which addresses a node may call. A name is resolved once, and the connection goes where it was allowed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address, ip_network
from typing import Literal

from rune.errors import NodeFailure, RuneError
from rune.nodes.io.address import Target, blocked, target
from rune.nodes.io.networks import Address, Network, is_public

Policy = Literal["public_only", "allow", "open"]
Resolve = Callable[[str, int], Awaitable[list[str]]]

RESOLVE_SECONDS = 5.0


class BadAllowList(RuneError):
    """An entry of the allow list that is neither a host nor a network."""

    code = "BAD_SETTINGS"


class Guard:
    """`public_only`: public addresses, and what the allow list names. `allow`: only what the allow list names.
    `open`: any address. The form of an address is checked under every policy."""

    def __init__(
        self, policy: Policy = "public_only", allow: Iterable[str] = (), resolve: Resolve | None = None
    ) -> None:
        self._policy = policy
        self._resolve = resolve or system_resolve
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        self._networks: list[Network] = []
        for entry in allow:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        if not entry:
            return
        try:
            self._networks.append(ip_network(entry.strip("[]"), strict=False))
            return
        except ValueError:
            pass
        if entry.startswith("*."):
            self._suffixes.append(entry[1:])
            entry = entry[2:]
        else:
            self._names.add(entry.removesuffix("."))
        try:
            found = target(f"http://{entry}/")
        except NodeFailure:
            found = None
        if found is None or found.literal is not None or found.host != entry.removesuffix("."):
            raise BadAllowList(f"RUNE_HTTP_ALLOW: `{entry}` is neither a host nor a network")

    def check(self, url: str) -> Target:
        """The target of an address that may be called as far as its text tells; a name is looked up later."""
        found = target(url)
        self.check_target(found)
        return found

    def check_target(self, found: Target) -> None:
        """Refuse what may not be called whatever its name resolves to."""
        if found.literal is not None:
            if not self.permits(found.host, found.literal):
                raise blocked(found.url, self._reason(found.literal))
        elif not self._names_host(found.host):
            if self._policy == "public_only" and (
                found.host == "localhost" or found.host.endswith(".localhost")
            ):
                raise blocked(found.url, "it is this machine")
            if self._policy == "allow" and not self._networks:
                raise blocked(found.url, "its host is not on the allow list")

    def permits(self, host: str, address: Address) -> bool:
        """Whether this host may be called at this address."""
        if self._policy == "open" or self._names_host(host):
            return True
        if any(address in network for network in self._networks):
            return True
        return self._policy == "public_only" and is_public(address)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """What a name resolves to, if it may be called at every one of its addresses."""
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = [ip_address(each) for each in await self._resolve(host, port)]
        if not found:
            raise OSError(f"{host} has no address")
        for each in found:
            if not self.permits(host, each):
                raise blocked(f"http://{host}/", f"its name leads to {each}, and {self._reason(each)}")
        return found

    def _names_host(self, host: str) -> bool:
        return host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def _reason(self, address: Address) -> str:
        if self._policy == "allow":
            return f"{address} is not on the allow list"
        return f"{address} is not a public address (RUNE_HTTP_ALLOW can name it)"


async def system_resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system knows them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
