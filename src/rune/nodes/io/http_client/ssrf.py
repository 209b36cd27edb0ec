"""SSRF protection: parses URLs strictly and decides which addresses a node may call.

A URL that two parsers could read differently is rejected. A name is resolved once, and the connection goes to an
address that was checked. The lists of non-public networks are maintained here because `ipaddress.is_global` has
changed between Python versions and has gaps.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import quote, urljoin

import msgspec

from rune.errors import NodeFailure, RuneError
from rune.nodes.redaction import redacted

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Policy = Literal["public_only", "allow", "open"]
Resolve = Callable[[str, int], Awaitable[list[str]]]

BLOCKED = "HTTP_BLOCKED"
MAX_URL_CHARS = 8_000
RESOLVE_TIMEOUT_S = 5.0
PORTS = {"http": 80, "https": 443}

_DENIED_V4: tuple[IPv4Network, ...] = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT; also a cloud's metadata service
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's metadata service at a public-looking address
            "169.254.0.0/16",  # link-local; metadata services
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; also a cloud's metadata service
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)

# Everything else is not public: loopback, IPv4-mapped, NAT64, unique-local, site-local, multicast.
_UNICAST_V6 = IPv6Network("2000::/3")

_DENIED_V6: tuple[IPv6Network, ...] = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: contains an IPv4 address
            "2620:4f:8000::/48",
            "3ffe::/16",  # returned 6bone range
            "3fff::/20",  # documentation
        ),
    )
)

_ISATAP = (0x00005EFE, 0x02005EFE)

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?"
)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_PATH_SAFE = "/:@!$&'()*+,;=-._~%"
_QUERY_SAFE = _PATH_SAFE + "?[]|"


class AllowListError(RuneError):
    """An entry of the allow list is neither a host nor a network."""

    code = "BAD_SETTINGS"


@lru_cache(maxsize=4096)
def is_public(address: Address) -> bool:
    """Return whether an address is publicly routable."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _DENIED_V4)
    if address.scope_id is not None or address not in _UNICAST_V6:
        return False
    # ISATAP: the low half is an IPv4 address behind a tunnel.
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return False
    return not any(address in network for network in _DENIED_V6)


class Target(msgspec.Struct, frozen=True):
    """The parsed URL of a request. `host` is lower-case ASCII without a final dot; `literal` is set if it is an IP
    address."""

    scheme: str
    host: str
    port: int
    resource: str
    literal: Address | None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return the origin; credentials are only sent within one."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Return host and port, without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL as requested: without userinfo and fragment."""
        return f"{self.scheme}://{self.authority}{self.resource}"


def blocked(url: str, reason: str) -> NodeFailure:
    """Return the failure for a blocked URL."""
    return NodeFailure(f"{redacted(url)} is blocked: {reason}", code=BLOCKED)


@lru_cache(maxsize=256)
def target(url: str) -> Target:
    """Parse a URL; an unusual host is rejected."""
    if len(url) > MAX_URL_CHARS:
        raise blocked(url[:200], f"it is longer than {MAX_URL_CHARS:,} characters")
    url = url.strip(" ")
    if _UNSAFE.search(url):
        raise blocked(url, "it contains a space, a backslash or a control character")
    found = _URL.match(url)
    if found is None:
        raise blocked(url, "it is not an absolute URL such as https://example.com/")
    scheme = found["scheme"].lower()
    if scheme not in PORTS:
        raise blocked(url, f"its scheme is {scheme}; only http and https are allowed")
    if "@" in found["authority"]:
        raise blocked(url, "it contains a user name or password; send an Authorization header instead")
    parts = _AUTHORITY.fullmatch(found["authority"])
    if parts is None:
        raise blocked(url, "its host is not valid")
    host, literal = _host(url, parts["host"])
    port = int(parts["port"]) if parts["port"] else PORTS[scheme]
    if not 0 < port < 65_536:
        raise blocked(url, f"{port} is not a valid port")
    return Target(scheme, host, port, _resource(url, found["path"], found["query"] or ""), literal)


def join_url(base: Target, location: str) -> Target:
    """Resolve the location of a redirect or link against a URL."""
    if _UNSAFE.search(location):
        raise blocked(location, "it contains a space, a backslash or a control character")
    try:
        return target(location if _ABSOLUTE.match(location) else urljoin(base.url, location))
    except ValueError:
        raise blocked(location, "it is not a valid URL") from None


def _resource(url: str, path: str, query: str) -> str:
    try:
        return (quote(path, safe=_PATH_SAFE) or "/") + quote(query, safe=_QUERY_SAFE)
    except UnicodeEncodeError:
        raise blocked(url, "it contains a lone surrogate") from None


def _host(url: str, text: str) -> tuple[str, Address | None]:
    found = _parse_host_cached(text)
    if isinstance(found, str):
        raise blocked(url, found)
    return found


@lru_cache(maxsize=1024)
def _parse_host_cached(text: str) -> tuple[str, Address | None] | str:
    """Return the parsed host, or the reason it is not valid; cached because workflows call few hosts often."""
    try:
        return _parse_host(text)
    except _MalformedHostError as error:
        return str(error)


class _MalformedHostError(ValueError):
    """The reason a host is not valid."""


def _parse_host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        return _v6(text[1:-1])
    name = text.lower()
    is_ascii = name.isascii()
    if not is_ascii:
        name = _ascii(text)
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if not is_ascii or not _QUAD.fullmatch(name):
            raise _MalformedHostError("its host is an unusual notation of an IP address")
        try:
            return name, IPv4Address(name)
        except ValueError:
            raise _MalformedHostError("its host is not an IP address") from None
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _MalformedHostError("its host is not a host name")
    return name, None


def _v6(text: str) -> tuple[str, Address]:
    if "%" in text:
        raise _MalformedHostError("its host has a zone id")
    try:
        address = IPv6Address(text)
    except ValueError:
        raise _MalformedHostError("its host is not an IP address") from None
    return str(address), address


def _ascii(name: str) -> str:
    import idna  # noqa: PLC0415 - needed by few names

    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise _MalformedHostError("its host is not a host name") from None


class AddressGuard:
    """Decides which addresses may be called.

    `public_only`: public addresses and the allow list. `allow`: only the allow list. `open`: any address. URLs are
    validated under every policy.
    """

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
            raise AllowListError(f"RUNE_HTTP_ALLOW: `{entry}` is neither a host nor a network")

    def check(self, url: str) -> Target:
        """Parse a URL and check what its text reveals; names are resolved later."""
        found = target(url)
        self.check_target(found)
        return found

    def check_target(self, found: Target) -> None:
        """Block a target that is not allowed whatever its name resolves to."""
        if found.literal is not None:
            if not self.permits(found.host, found.literal):
                raise blocked(found.url, self._reason(found.literal))
        elif not self._lists_host(found.host):
            if self._policy == "public_only" and (
                found.host == "localhost" or found.host.endswith(".localhost")
            ):
                raise blocked(found.url, "it is the local machine")
            if self._policy == "allow" and not self._networks:
                raise blocked(found.url, "its host is not on the allow list")

    def permits(self, host: str, address: Address) -> bool:
        """Return whether a host may be called at an address."""
        if self._policy == "open" or self._lists_host(host):
            return True
        if any(address in network for network in self._networks):
            return True
        return self._policy == "public_only" and is_public(address)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Resolve a name; fail unless all of its addresses are allowed."""
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = [ip_address(each) for each in await self._resolve(host, port)]
        if not found:
            raise OSError(f"{host} has no address")
        for each in found:
            if not self.permits(host, each):
                # Without the address: the message would tell what names of the internal network resolve to.
                shown = host if port in PORTS.values() else f"{host}:{port}"
                raise blocked(shown, f"its name resolves to an address that {self._lacks()}")
        return found

    def _lists_host(self, host: str) -> bool:
        return host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def _reason(self, address: Address) -> str:
        return f"{address} {self._lacks()}"

    def _lacks(self) -> str:
        if self._policy == "allow":
            return "is not on the allow list"
        return "is not a public address (add it to RUNE_HTTP_ALLOW to permit it)"


async def system_resolve(host: str, port: int) -> list[str]:
    """Resolve a name with the system resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
