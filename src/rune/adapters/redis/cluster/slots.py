"""Slots of a Redis Cluster: the key of a command, the slot of a key, the server of a slot, the addresses of a URL."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from rune.adapters.redis.client import DEFAULT_PORT, Argument, InvalidAddressError

SLOTS = 16_384

Address = tuple[str, int]
"""Host and port of a server."""

_KEYLESS = frozenset(
    (
        "PING",
        "ECHO",
        "TIME",
        "INFO",
        "SCAN",
        "CLIENT",
        "FUNCTION",
        "CLUSTER",
        "CONFIG",
        "PUBSUB",
        "DBSIZE",
        "ACL",
    )
)
_KEY_AFTER_SUBCOMMAND = frozenset(("XGROUP", "XINFO"))


def is_cluster(url: str) -> bool:
    """Return whether a URL names a Redis Cluster: with several hosts, or with `cluster=true`."""
    parts = urlsplit(url)
    return "," in parts.netloc or dict(parse_qsl(parts.query)).get("cluster") == "true"


def seed_urls(url: str) -> list[str]:
    """Return a URL for each host of the URL of a cluster."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        raise InvalidAddressError(
            "a Redis Cluster has no `unix://` address: its servers redirect to host and port"
        )
    if parts.path.strip("/") not in ("", "0"):
        raise InvalidAddressError("a Redis Cluster has only the database 0")
    login, at, hosts = parts.netloc.rpartition("@")
    options = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "cluster"
    ]
    found = [
        SplitResult(parts.scheme, f"{login}{at}{host}", "", urlencode(options), "").geturl()
        for host in hosts.split(",")
        if host
    ]
    for each in found:
        try:
            valid = urlsplit(each).port != 0
        except ValueError:
            valid = False
        if not valid:
            raise InvalidAddressError("a host of the Redis Cluster has an invalid port")
    if not found:
        raise InvalidAddressError("the address of a Redis Cluster names no host")
    return found


def server_url(seed: str, address: Address) -> str:
    """Return the URL of a server with the login and the TLS options of another one."""
    parts = urlsplit(seed)
    login, at, _ = parts.netloc.rpartition("@")
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return parts._replace(netloc=f"{login}{at}{host}:{address[1]}").geturl()


def address_of(url: str) -> Address:
    parts = urlsplit(url)
    return parts.hostname or "localhost", parts.port or DEFAULT_PORT


def key_slot(key: str) -> int:
    """Return the slot of a key. If it has a hash tag, that decides."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if 0 <= start < end - 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


def command_key(parts: Sequence[Argument]) -> str | None:
    """Return the first key of a command, None if it has none. The channel of a message counts as one: processes
    subscribe where its slot is, so that the server knows how many have received it."""
    name = str(parts[0]).upper()
    if name in _KEYLESS:
        return None
    if name == "FCALL" and int(parts[2]) == 0:
        return None
    if name == "XREADGROUP":
        key = parts[parts.index("STREAMS") + 1]
    else:
        key = parts[3 if name == "FCALL" else 2 if name in _KEY_AFTER_SUBCOMMAND else 1]
    return key.decode() if isinstance(key, bytes) else str(key)


class SlotMap:
    """Which server has which slots, as one server of the cluster described it."""

    def __init__(self, reply: Sequence[Any] = (), asked: Address = ("", 0)) -> None:
        """`reply` is that of CLUSTER SLOTS. A server without a known host is the one that was asked."""
        self._ranges: list[tuple[int, int, Address]] = []
        self._moved: dict[int, Address] = {}
        self.servers: list[Address] = []
        """All servers, masters first."""
        replicas: list[Address] = []
        for first, last, *nodes in reply:
            found = [((host or b"").decode() or asked[0], int(port)) for host, port, *_ in nodes]
            self._ranges.append((int(first), int(last), found[0]))
            replicas += found[1:]
        self.masters = list(dict.fromkeys(each for _, _, each in self._ranges))
        self.servers = list(dict.fromkeys((*self.masters, *replicas)))

    def master(self, slot: int) -> Address | None:
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        return next((address for first, last, address in self._ranges if first <= slot <= last), None)

    def move(self, slot: int, address: Address) -> None:
        """Note where a server has redirected to. This precedes the description of the other servers."""
        self._moved[slot] = address
