"""`smtp`: a mail.

A mail put together: addresses read and written anew, headers that nobody can add to.

The server a mail is handed to, and how it is spoken to.

Hands a mail to its server.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import aiosmtplib
import msgspec
from aiosmtplib import SMTP
from msgspec import Meta
from msgspec.structs import replace

from rune.core.execution.outcome import Outcome, Output
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import CREDENTIAL_ERRORS, FORBIDDEN, check_host
from rune.nodes.io.http_client.request import File, Loaded, load
from rune.nodes.schema import Model, Scalar, declare, plain
from rune.ports.credentials import Smtp

Addresses = str | list[str]
MAX_ATTACHED_BYTES = 25 * 1024 * 1024
"""Bytes that all attachments of a mail may have together; few servers take more."""


class Parameters(Model, kw_only=True, frozen=True):
    """The mail."""

    from_: Annotated[str | None, Meta(description="Sender. Default: the credential's.")] = msgspec.field(
        name="from", default=None
    )
    to: Annotated[Addresses, Meta(description="Recipients, as a list or separated by commas.")]
    cc: Annotated[Addresses | None, Meta(description="Recipients of a copy.")] = None
    bcc: Annotated[Addresses | None, Meta(description="Recipients the others do not see.")] = None
    subject: Annotated[Scalar, Meta(description="Subject line.")] = ""
    body: Annotated[Any, Meta(description="Plain text; what is not text is shown as JSON.")] = ""
    html: Annotated[str | bool | None, Meta(description="An HTML version; true: `body` is HTML.")] = None
    attachments: Annotated[
        Annotated[list[File], Meta(max_length=50)],
        Meta(description="Attached files: references to blobs, or `{filename, content}`."),
    ] = msgspec.field(default_factory=list)


TYPE = declare(
    "smtp",
    Parameters,
    summary="Sends a mail.",
    doc="Sends one mail through the server of its credential, or else of `RUNE_SMTP_URL`. Addresses are parsed and "
    "written anew, so no value can add a header.",
    output="`{sent, message_id, accepted, rejected}`.",
    errors={
        "SMTP_CONNECT": "no connection to the server",
        "SMTP_TIMEOUT": "the server did not answer in time",
        "SMTP_AUTH": "the server refuses the login",
        "SMTP_REJECTED": "the server refuses the mail or all recipients",
        "SMTP_BAD_ADDRESS": "an address is not valid, or there are none or too many",
        "SMTP_NO_SERVER": "no server is configured",
        "SMTP_TOO_LARGE": "the attachments have more than 25 MiB together",
        "BLOB_UNKNOWN": "a reference leads to no blob of this execution",
        **CREDENTIAL_ERRORS,
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """One mail, one connection."""

    files = await _attached(call)
    server, sender = await server_for(call)
    parameters = replace(call.parameters, from_=call.parameters.from_ or sender)
    mail = compose(parameters, key=call.idempotency_key, now=call.now, files=files)
    return Output(await deliver(mail, server))


async def _attached(call: NodeCall[Parameters]) -> list[Loaded]:
    """The attachments with their bytes; what is announced as too large is not even fetched."""
    listed = call.parameters.attachments
    if sum(each.size or 0 for each in listed) > MAX_ATTACHED_BYTES:
        raise _too_large()
    files: list[Loaded] = []
    left = MAX_ATTACHED_BYTES
    for index, each in enumerate(listed):
        file = await load(each, call.blobs, call.limits.output_bytes, f"parameters.attachments[{index}]")
        left -= len(file.data)
        if left < 0:
            raise _too_large()
        files.append(file)
    return files


def _too_large() -> NodeFailure:
    return NodeFailure(
        f"parameters.attachments: more than {MAX_ATTACHED_BYTES:,} bytes together", code="SMTP_TOO_LARGE"
    )


BAD_ADDRESS = "SMTP_BAD_ADDRESS"
MAX_RECIPIENTS = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]+")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ALLOWED = frozenset(
    {"from", "to", "cc", "subject", "date", "message-id", "mime-version", "content-type"}
    | {"content-transfer-encoding"}
)


class Mail(msgspec.Struct, frozen=True):
    """What is handed to a server."""

    sender: str
    recipients: tuple[str, ...]
    message_id: str
    raw: bytes


def compose(parameters: Any, *, key: str, now: int, files: Sequence[Loaded] = ()) -> Mail:
    """The mail that a node's parameters ask for."""
    senders = addresses("from", parameters.from_)
    if len(senders) != 1:
        raise NodeFailure("parameters.from: there must be one sender", code=BAD_ADDRESS)
    to = addresses("to", parameters.to)
    cc = addresses("cc", parameters.cc)
    bcc = addresses("bcc", parameters.bcc)
    recipients = tuple(dict.fromkeys(each.addr_spec for each in (*to, *cc, *bcc)))
    if not recipients:
        raise NodeFailure("parameters.to: there is no recipient", code=BAD_ADDRESS)
    if len(recipients) > MAX_RECIPIENTS:
        raise NodeFailure(
            f"parameters.to: {len(recipients)} recipients, at most {MAX_RECIPIENTS} are allowed",
            code=BAD_ADDRESS,
        )
    message = EmailMessage(policy=SMTP_POLICY)
    message["From"] = senders[0]
    if to:
        message["To"] = to
    if cc:
        message["Cc"] = cc
    message["Subject"] = _line(plain(parameters.subject))
    message["Date"] = format_datetime(datetime.fromtimestamp(now / 1000, UTC))
    message["Message-ID"] = message_id(key, senders[0].domain)
    _fill(message, parameters)
    for file in files:
        _attach(message, file)
    return Mail(senders[0].addr_spec, recipients, str(message["Message-ID"]), _written(message))


def _line(text: str) -> str:
    """Text for one header. The library would decode an encoded word, and with it a line break that is hidden
    there, so there is none."""
    return _CONTROL.sub(" ", text).replace("=?", "= ?").strip()


def message_id(key: str, domain: str) -> str:
    """The same in every attempt, so that a mail that was sent twice can be told to be one."""
    name = hashlib.sha256(key.encode()).hexdigest()[:40] if key else uuid.uuid4().hex
    return f"<{name}@{domain}>"


def addresses(field: str, given: str | list[str] | None) -> tuple[Address, ...]:
    """The addresses of a field, each checked part by part."""
    texts = [given] if isinstance(given, str) else given or []
    return tuple(each for text in texts if text.strip() for each in _parsed(field, text.strip()))


def _parsed(field: str, text: str) -> list[Address]:
    if _CONTROL.search(text) or len(text) > 20_000:
        raise _refused(field, text)
    try:
        header: Any = SMTP_POLICY.header_factory("to", text)
        found = header.addresses
    except Exception:  # the parser of the standard library fails in many ways on nonsense
        raise _refused(field, text) from None
    if header.defects or not found:
        raise _refused(field, text)
    return [_checked(field, text, each) for each in found]


def _checked(field: str, text: str, address: Address) -> Address:
    domain = address.domain
    if _line(address.display_name) != address.display_name:
        raise _refused(field, text)
    if not domain.isascii():
        import idna  # noqa: PLC0415 - only few domains need it

        try:
            domain = idna.encode(domain, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            raise _refused(field, text) from None
    domain = domain.lower()
    fits = _LOCAL.fullmatch(address.username) and _DOMAIN.fullmatch(domain)
    if not fits or len(address.username) > 64 or len(domain) > 253:
        raise _refused(field, text)
    return Address(address.display_name, address.username, domain)


def _refused(field: str, text: str) -> NodeFailure:
    shown = _CONTROL.sub(" ", text)[:100]
    return NodeFailure(f"parameters.{field}: `{shown}` is no mail address", code=BAD_ADDRESS)


def _fill(message: EmailMessage, parameters: Any) -> None:
    body = parameters.body if isinstance(parameters.body, str) else _shown(parameters.body)
    if parameters.html is True:
        message.set_content(body, subtype="html")
        return
    message.set_content(body)
    if isinstance(parameters.html, str) and parameters.html:
        message.add_alternative(parameters.html, subtype="html")


def _attach(message: EmailMessage, file: Loaded) -> None:
    """A file as bytes, whatever it is: nothing in it is read as a part of the mail."""
    main, _, sub = file.content_type.partition("/")
    if main in ("multipart", "message"):  # these would be taken for parts of this mail
        main, sub = "application", "octet-stream"
    message.add_attachment(file.data, maintype=main, subtype=sub, filename=_line(file.name) or "file")


def _shown(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _written(message: EmailMessage) -> bytes:
    """The text of the mail; read back, its headers must be those that were put in."""
    raw = message.as_bytes()
    head = raw.partition(b"\r\n\r\n")[0].decode("ascii", "replace")
    names = [line.partition(":")[0].lower() for line in head.split("\r\n") if line[:1] not in (" ", "\t")]
    if not set(names) <= _ALLOWED or len(names) != len(set(names)) or "\n" in head.replace("\r\n", ""):
        raise NodeFailure("the mail has a header that nobody asked for", code=BAD_ADDRESS)
    return raw


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


async def server_for(call: NodeCall[Any]) -> tuple[Server, str | None]:
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


COMMAND_SECONDS = 30.0
WHOLE_SECONDS = 120.0


async def deliver(mail: Mail, server: Server, *, seconds: float = COMMAND_SECONDS) -> dict[str, Any]:
    """What became of the mail. It is an error only if nobody gets it."""
    where = f"{server.host}:{server.port}"
    try:
        async with asyncio.timeout(WHOLE_SECONDS):
            refused = await _session(mail, server, seconds)
    except (TimeoutError, aiosmtplib.SMTPTimeoutError) as error:
        code = "SMTP_CONNECT" if isinstance(error, aiosmtplib.SMTPConnectTimeoutError) else "SMTP_TIMEOUT"
        raise NodeFailure(f"{where} did not answer in time", code=code) from None
    except aiosmtplib.SMTPRecipientsRefused as error:
        rejected = [_rejection(each.recipient, each.code, each.message) for each in error.recipients]
        raise NodeFailure(
            f"{where} accepts no recipient", code="SMTP_REJECTED", details={"rejected": rejected}
        ) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        raise NodeFailure(f"{where} refuses the login ({error.code})", code="SMTP_AUTH") from None
    except (aiosmtplib.SMTPConnectError, aiosmtplib.SMTPServerDisconnected, OSError) as error:
        raise NodeFailure(f"{where}: no connection: {_said(error)}", code="SMTP_CONNECT") from None
    except aiosmtplib.SMTPResponseException as error:
        raise NodeFailure(
            f"{where} refuses the mail: {error.code} {_said(error)}",
            code="SMTP_REJECTED",
            details={"status": error.code},
        ) from None
    except aiosmtplib.SMTPException as error:
        code = "SMTP_CONNECT" if server.security != "none" else "SMTP_REJECTED"
        raise NodeFailure(f"{where}: {_said(error)}", code=code) from None
    names = {each["address"] for each in refused}
    return {
        "sent": True,
        "message_id": mail.message_id,
        "accepted": [each for each in mail.recipients if each not in names],
        "rejected": refused,
    }


async def _session(mail: Mail, server: Server, seconds: float) -> list[dict[str, Any]]:
    context = ssl.create_default_context() if server.security != "none" else None
    client = SMTP(**server.options(), timeout=seconds, tls_context=context)
    async with client:
        refused, _ = await client.sendmail(mail.sender, list(mail.recipients), mail.raw)
    return [_rejection(name, said.code, said.message) for name, said in refused.items()]


def _rejection(address: str, code: int, message: str) -> dict[str, Any]:
    return {"address": address, "code": code, "message": message[:200]}


def _said(error: Exception) -> str:
    return (getattr(error, "message", None) or str(error) or type(error).__name__)[:200]
