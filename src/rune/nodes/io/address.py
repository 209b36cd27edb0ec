"""Addresses of the web, read strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

import msgspec

from rune.errors import NodeFailure
from rune.nodes.io.networks import Address
from rune.nodes.redaction import redacted

BLOCKED = "HTTP_BLOCKED"
LONGEST = 8_000
PORTS = {"http": 80, "https": 443}

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


class Target(msgspec.Struct, frozen=True):
    """Where a request goes. `host` is in lower case and ASCII, without a final dot; `literal` is set where it
    is an address and not a name."""

    scheme: str
    host: str
    port: int
    resource: str
    literal: Address | None

    @property
    def origin(self) -> tuple[str, str, int]:
        """What must be the same for a credential to be sent on."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port as they are written, without a port that goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as it is requested: no userinfo, no fragment."""
        return f"{self.scheme}://{self.authority}{self.resource}"


def blocked(url: str, reason: str) -> NodeFailure:
    """The refusal of an address."""
    return NodeFailure(f"{redacted(url)} is not called: {reason}", code=BLOCKED)


@lru_cache(maxsize=256)
def target(url: str) -> Target:
    """Read an address; anything unusual about its host is refused."""
    if len(url) > LONGEST:
        raise blocked(url[:200], f"it is longer than {LONGEST:,} characters")
    url = url.strip(" ")
    if _UNSAFE.search(url):
        raise blocked(url, "it holds a space, a backslash or a control character")
    found = _URL.match(url)
    if found is None:
        raise blocked(url, "it is no absolute address such as https://example.com/")
    scheme = found["scheme"].lower()
    if scheme not in PORTS:
        raise blocked(url, f"its scheme is {scheme}; only http and https can be")
    if "@" in found["authority"]:
        raise blocked(url, "it holds a user name or password; send an Authorization header instead")
    parts = _AUTHORITY.fullmatch(found["authority"])
    if parts is None:
        raise blocked(url, "its host cannot be read")
    host, literal = _host(url, parts["host"])
    port = int(parts["port"]) if parts["port"] else PORTS[scheme]
    if not 0 < port < 65_536:
        raise blocked(url, f"there is no port {port}")
    return Target(scheme, host, port, _resource(url, found["path"], found["query"] or ""), literal)


def joined(base: Target, location: str) -> Target:
    """Where a redirect or link leads."""
    if _UNSAFE.search(location):
        raise blocked(location, "it holds a space, a backslash or a control character")
    try:
        return target(location if _ABSOLUTE.match(location) else urljoin(base.url, location))
    except ValueError:
        raise blocked(location, "it cannot be read") from None


def _resource(url: str, path: str, query: str) -> str:
    try:
        return (quote(path, safe=_PATH_SAFE) or "/") + quote(query, safe=_QUERY_SAFE)
    except UnicodeEncodeError:
        raise blocked(url, "it holds half of a surrogate pair") from None


def _host(url: str, text: str) -> tuple[str, Address | None]:
    found = _seen_host(text)
    if isinstance(found, str):
        raise blocked(url, found)
    return found


@lru_cache(maxsize=1024)
def _seen_host(text: str) -> tuple[str, Address | None] | str:
    """A host as it was read, or what is wrong with it; workflows call the same ones again and again."""
    try:
        return _read_host(text)
    except _Odd as odd:
        return str(odd)


class _Odd(ValueError):
    """What is wrong with a host."""


def _read_host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        return _v6(text[1:-1])
    name = text.lower()
    plain = name.isascii()
    if not plain:
        name = _ascii(text)
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if not plain or not _QUAD.fullmatch(name):
            raise _Odd("its host is an unusual spelling of a number")
        try:
            return name, IPv4Address(name)
        except ValueError:
            raise _Odd("its host is no address") from None
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _Odd("its host is no name")
    return name, None


def _v6(text: str) -> tuple[str, Address]:
    if "%" in text:
        raise _Odd("its host has a zone")
    try:
        address = IPv6Address(text)
    except ValueError:
        raise _Odd("its host is no address") from None
    return str(address), address


def _ascii(name: str) -> str:
    import idna  # noqa: PLC0415 - only few names need it

    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise _Odd("its host is no name") from None
