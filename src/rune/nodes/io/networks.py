"""Which addresses are public. The lists are our own: what Python calls global has changed and has holes."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DENIED_V4: tuple[IPv4Network, ...] = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers; also a cloud's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's metadata on an address that looks public
            "169.254.0.0/16",  # link-local, metadata
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; also a cloud's metadata
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

_UNICAST_V6 = IPv6Network("2000::/3")
"""Whatever lies outside is not for the public: loopback, mapped, NAT64, unique and site local, multicast."""

_DENIED_V6: tuple[IPv6Network, ...] = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address in disguise
            "2620:4f:8000::/48",
            "3ffe::/16",  # given back
            "3fff::/20",  # documentation
        ),
    )
)

_ISATAP = (0x00005EFE, 0x02005EFE)


@lru_cache(maxsize=4096)
def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could call this address."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _DENIED_V4)
    if address.scope_id is not None or address not in _UNICAST_V6:
        return False
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:  # the low half is an IPv4 address behind a tunnel
        return False
    return not any(address in network for network in _DENIED_V6)
