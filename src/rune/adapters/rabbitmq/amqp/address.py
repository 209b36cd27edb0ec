"""Parses broker URLs into addresses with credentials, TLS and connection options.

`amqp[s]://user:password@host:port/vhost?option=value`, every part percent-encoded. Options, as RabbitMQ names them:
`heartbeat` (s, 0 for none), `connection_timeout` (ms), `frame_max` (bytes), `channel_max`, and with `amqps`
`cacertfile`, `certfile`, `keyfile`, `verify` (`verify_peer` or `verify_none`), `server_name_indication`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from rune.adapters.rabbitmq.amqp.errors import InvalidAddressError

PORTS = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_S = 30
CONNECTION_TIMEOUT_MS = 10_000
FRAME_MAX = 131_072
MIN_FRAME_BYTES = 4096
MAX_OPTION_VALUES = {
    "heartbeat": 65_535,
    "connection_timeout": 600_000,
    "frame_max": 2**31 - 1,
    "channel_max": 65_535,
}
TEXT_OPTIONS = {"cacertfile", "certfile", "keyfile", "verify", "server_name_indication"}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed broker URL."""

    host: str
    port: int
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    secure: bool = False
    heartbeat: int = HEARTBEAT_S
    connection_timeout: int = CONNECTION_TIMEOUT_MS
    frame_max: int = FRAME_MAX
    channel_max: int = 0
    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    verify: str = "verify_peer"
    server_name_indication: str = ""

    def __repr__(self) -> str:
        """Return the URL without the password, for logs."""
        scheme = "amqps" if self.secure else "amqp"
        return f"{scheme}://{self.user}@{self.host}:{self.port}/{'' if self.vhost == '/' else self.vhost}"

    __str__ = __repr__

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, None for an unencrypted connection."""
        if not self.secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.cacertfile or None)
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile or None)
        except OSError as error:
            raise InvalidAddressError(f"{self}: the certificates cannot be read: {error}") from None
        if self.verify == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidAddressError(f"not the URL of a broker: {error}") from None
    if parts.scheme not in PORTS:
        raise InvalidAddressError(f"`{parts.scheme}` is no scheme of a broker; use amqp:// or amqps://")
    vhost = unquote(parts.path[1:])
    if "/" in parts.path[1:]:
        raise InvalidAddressError(f"vhost `{vhost}`: a slash in it is written %2F")
    options = _options(dict(parse_qsl(parts.query, keep_blank_values=True)))
    return msgspec.convert(
        {
            "host": parts.hostname or "localhost",
            "port": port or PORTS[parts.scheme],
            "user": "guest" if parts.username is None else unquote(parts.username),
            "password": "guest" if parts.password is None else unquote(parts.password),
            "vhost": vhost or "/",
            "secure": parts.scheme == "amqps",
            **options,
        },
        Address,
    )


def _options(query: Mapping[str, str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for name, value in query.items():
        if name in MAX_OPTION_VALUES:
            if not (value.isascii() and value.isdecimal()) or int(value) > MAX_OPTION_VALUES[name]:
                raise InvalidAddressError(
                    f"{name}={value}: a whole number up to {MAX_OPTION_VALUES[name]:,} is expected"
                )
            found[name] = int(value)
        elif name in TEXT_OPTIONS:
            found[name] = value
        else:
            raise InvalidAddressError(f"`{name}` is no option of a broker's URL")
    if 0 < int(found.get("frame_max", 0)) < MIN_FRAME_BYTES:
        raise InvalidAddressError(f"frame_max={found['frame_max']}: at least {MIN_FRAME_BYTES:,} are needed")
    if found.get("connection_timeout", 1) == 0:
        raise InvalidAddressError("connection_timeout=0: a timeout must be positive; leave it out for 10 s")
    if found.get("verify", "verify_none") not in ("verify_peer", "verify_none"):
        raise InvalidAddressError(f"verify={found['verify']}: verify_peer or verify_none")
    return found
