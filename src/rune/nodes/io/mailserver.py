"""The server a mail is handed to, and how it is spoken to."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.usage import FORBIDDEN, check_host
from rune.ports.secret import Smtp

NO_SERVER = "SMTP_NO_SERVER"
Security = Literal["none", "starttls", "tls"]
_PORTS: dict[Security, int] = {"none": 25, "starttls": 587, "tls": 465}


class Server(msgspec.Struct, frozen=True):
    """Where mails go. The password shows in no message."""

    host: str
    port: int
    security: Security
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Server({self.host}:{self.port}, {self.security})"

    def options(self) -> dict[str, Any]:
        """As `aiosmtplib` wants to hear it."""
        return {
            "hostname": self.host,
            "port": self.port,
            "use_tls": self.security == "tls",
            "start_tls": self.security == "starttls",
            "username": self.user,
            "password": self.password,
        }


def server(url: str) -> Server:
    """Read `smtp://`, `smtp+starttls://` or `smtps://`. Without TLS only this machine is spoken to: elsewhere
    `smtp://` too insists on STARTTLS."""
    if not url:
        raise NodeFailure("there is no mail server: set RUNE_SMTP_URL", code=NO_SERVER)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, None
    if parts is None or not host or parts.scheme not in ("smtp", "smtps", "smtp+starttls"):
        raise NodeFailure("RUNE_SMTP_URL is no address such as smtps://mail.example.com", code=NO_SERVER)
    security: Security = "tls" if parts.scheme == "smtps" else "starttls"
    if parts.scheme == "smtp" and _is_here(host):
        security = "none"
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return Server(host, port or _PORTS[security], security, user, password)


async def server_for(call: Call[Any]) -> tuple[Server, str | None]:
    """The server that a call hands its mail to, and who the mail is from unless it says so."""
    credential = await call.credential("smtp")
    if credential is None:
        found = server(call.world.smtp_url)
        if found.password:
            call.protect(found.password, f"\0{found.user or ''}\0{found.password}")
        return found, None
    fields = credential.fields
    assert isinstance(fields, Smtp)
    check_host(credential, fields.host)
    return server_of(fields), fields.sender


def server_of(fields: Smtp) -> Server:
    """The server of a credential."""
    if fields.password is not None and fields.security == "none" and not _is_here(fields.host):
        raise NodeFailure(
            f"{fields.host}: a password is not sent without TLS; `security` must be tls or starttls",
            code=FORBIDDEN,
        )
    port = fields.port or _PORTS[fields.security]
    return Server(fields.host, port, fields.security, fields.username, fields.password)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
