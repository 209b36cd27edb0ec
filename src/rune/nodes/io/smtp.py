"""The `smtp` node: composes a mail and delivers it to a mail server.

Addresses are parsed and re-encoded, so that no value can inject a header.
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

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rune.core.execution.outcome import Outcome, Output
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import (
    CREDENTIAL_ERRORS,
    FORBIDDEN,
    PERMANENT_CREDENTIAL_ERRORS,
    check_connection,
    check_host,
)
from rune.nodes.io.http_client.request import File, Loaded, load
from rune.nodes.schema import Model, Scalar, declare, plain
from rune.ports.credentials import Smtp

Addresses = str | list[str]
Security = Literal["none", "starttls", "tls"]

BAD_ADDRESS = "SMTP_BAD_ADDRESS"
NO_SERVER = "SMTP_NO_SERVER"
COMMAND_TIMEOUT_S = 30.0
DELIVERY_TIMEOUT_S = 120.0
MAX_RECIPIENTS = 100

# Limit of all attachments of a mail together; few servers accept more.
MAX_ATTACHED_BYTES = 25 * 1024 * 1024

_PERMANENT_REPLY = 500  # replies below, such as 451, ask for another attempt (RFC 5321)
_PORTS: dict[Security, int] = {"none": 25, "starttls": 587, "tls": 465}
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]+")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ALLOWED_HEADERS = frozenset(
    {"from", "to", "cc", "subject", "date", "message-id", "mime-version", "content-type"}
    | {"content-transfer-encoding"}
)


class Parameters(Model, kw_only=True, frozen=True):
    """The mail."""

    from_: Annotated[str | None, Meta(description="Sender. Default: the credential's.")] = msgspec.field(
        name="from", default=None
    )
    to: Annotated[Addresses, Meta(description="Recipients, as a list or comma-separated.")]
    cc: Annotated[Addresses | None, Meta(description="Copy recipients.")] = None
    bcc: Annotated[Addresses | None, Meta(description="Blind copy recipients.")] = None
    subject: Annotated[Scalar, Meta(description="Subject line.")] = ""
    body: Annotated[Any, Meta(description="Plain text; a value that is not text is formatted as JSON.")] = ""
    html: Annotated[
        str | bool | None, Meta(description="HTML version of the body; true: `body` is HTML.")
    ] = None
    attachments: Annotated[
        Annotated[list[File], Meta(max_length=50)],
        Meta(description="Attachments: blob references or `{filename, content}`."),
    ] = msgspec.field(default_factory=list)


TYPE = declare(
    "smtp",
    Parameters,
    summary="Sends a mail.",
    doc="Sends one mail through the server of its credential, or else of `RUNE_SMTP_URL`. Addresses are parsed and "
    "re-encoded, so that no value can inject a header.",
    output="`{sent, message_id, accepted, rejected}`.",
    errors={
        "SMTP_CONNECT": "the connection to the server failed",
        "SMTP_TIMEOUT": "the server did not respond before the timeout",
        "SMTP_AUTH": "the server rejected the login",
        "SMTP_REJECTED": "the server rejected the mail or all recipients",
        "SMTP_BAD_ADDRESS": "an address is not valid, or there are no or too many recipients",
        "SMTP_NO_SERVER": "no server is configured",
        "SMTP_TOO_LARGE": "the attachments exceed 25 MiB in total",
        "BLOB_UNKNOWN": "the reference does not match a blob of this execution",
        **CREDENTIAL_ERRORS,
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    permanent=frozenset({"SMTP_BAD_ADDRESS", "SMTP_NO_SERVER", "SMTP_TOO_LARGE", "BLOB_UNKNOWN"})
    | PERMANENT_CREDENTIAL_ERRORS,
    by_status=frozenset({"SMTP_AUTH", "SMTP_REJECTED"}),
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """Send one mail over its own connection."""
    files = await _load_attachments(call)
    server, sender = await server_for(call)
    parameters = replace(call.parameters, from_=call.parameters.from_ or sender)
    mail = compose(parameters, key=call.idempotency_key, now=call.now, files=files)
    return Output(await deliver(mail, server))


async def _load_attachments(call: NodeCall[Parameters]) -> list[Loaded]:
    """Load the attachments; they are not loaded if their announced sizes exceed the limit."""
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
        f"parameters.attachments: more than {MAX_ATTACHED_BYTES:,} bytes in total", code="SMTP_TOO_LARGE"
    )


class Mail(msgspec.Struct, frozen=True):
    """A composed mail."""

    sender: str
    recipients: tuple[str, ...]
    message_id: str
    raw: bytes


def compose(parameters: Any, *, key: str, now: int, files: Sequence[Loaded] = ()) -> Mail:
    """Compose a mail from the parameters of a node."""
    senders = addresses("from", parameters.from_)
    if len(senders) != 1:
        raise NodeFailure("parameters.from: exactly one sender is required", code=BAD_ADDRESS)
    to = addresses("to", parameters.to)
    cc = addresses("cc", parameters.cc)
    bcc = addresses("bcc", parameters.bcc)
    recipients = tuple(dict.fromkeys(each.addr_spec for each in (*to, *cc, *bcc)))
    if not recipients:
        raise NodeFailure("parameters.to: no recipient is given", code=BAD_ADDRESS)
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
    _set_body(message, parameters)
    for file in files:
        _attach(message, file)
    return Mail(senders[0].addr_spec, recipients, str(message["Message-ID"]), _encode(message))


def _line(text: str) -> str:
    """Return text for one header, without line breaks and encoded words.

    The email library decodes encoded words, which could contain a line break.
    """
    return _CONTROL.sub(" ", text).replace("=?", "= ?").strip()


def message_id(key: str, domain: str) -> str:
    """Return a message id that is the same in every attempt, so that a mail sent twice can be deduplicated."""
    name = hashlib.sha256(key.encode()).hexdigest()[:40] if key else uuid.uuid4().hex
    return f"<{name}@{domain}>"


def addresses(field: str, given: str | list[str] | None) -> tuple[Address, ...]:
    """Parse and check the addresses of a field."""
    texts = [given] if isinstance(given, str) else given or []
    return tuple(each for text in texts if text.strip() for each in _parse_addresses(field, text.strip()))


def _parse_addresses(field: str, text: str) -> list[Address]:
    if _CONTROL.search(text) or len(text) > 20_000:
        raise _bad_address(field, text)
    try:
        header: Any = SMTP_POLICY.header_factory("to", text)
        found = header.addresses
    # The parser of the standard library raises many kinds of exceptions on invalid input.
    except Exception:
        raise _bad_address(field, text) from None
    if header.defects or not found:
        raise _bad_address(field, text)
    return [_check_address(field, text, each) for each in found]


def _check_address(field: str, text: str, address: Address) -> Address:
    domain = address.domain
    if _line(address.display_name) != address.display_name:
        raise _bad_address(field, text)
    if not domain.isascii():
        import idna  # noqa: PLC0415 - needed by few domains

        try:
            domain = idna.encode(domain, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            raise _bad_address(field, text) from None
    domain = domain.lower()
    is_valid = _LOCAL.fullmatch(address.username) and _DOMAIN.fullmatch(domain)
    if not is_valid or len(address.username) > 64 or len(domain) > 253:
        raise _bad_address(field, text)
    return Address(address.display_name, address.username, domain)


def _bad_address(field: str, text: str) -> NodeFailure:
    shown = _CONTROL.sub(" ", text)[:100]
    return NodeFailure(f"parameters.{field}: `{shown}` is not a valid mail address", code=BAD_ADDRESS)


def _set_body(message: EmailMessage, parameters: Any) -> None:
    body = parameters.body if isinstance(parameters.body, str) else _format_json(parameters.body)
    if parameters.html is True:
        message.set_content(body, subtype="html")
        return
    message.set_content(body)
    if isinstance(parameters.html, str) and parameters.html:
        message.add_alternative(parameters.html, subtype="html")


def _attach(message: EmailMessage, file: Loaded) -> None:
    """Attach a file as bytes; its content is never parsed as part of the mail."""
    main, _, sub = file.content_type.partition("/")
    # These types would be parsed as parts of this mail.
    if main in ("multipart", "message"):
        main, sub = "application", "octet-stream"
    message.add_attachment(file.data, maintype=main, subtype=sub, filename=_line(file.name) or "file")


def _format_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _encode(message: EmailMessage) -> bytes:
    """Encode the mail and verify that it contains only the headers that were set."""
    raw = message.as_bytes()
    head = raw.partition(b"\r\n\r\n")[0].decode("ascii", "replace")
    names = [line.partition(":")[0].lower() for line in head.split("\r\n") if line[:1] not in (" ", "\t")]
    if (
        not set(names) <= _ALLOWED_HEADERS
        or len(names) != len(set(names))
        or "\n" in head.replace("\r\n", "")
    ):
        raise NodeFailure("the mail contains an unexpected header", code=BAD_ADDRESS)
    return raw


class Server(msgspec.Struct, frozen=True):
    """A mail server. Its repr omits the password."""

    host: str
    port: int
    security: Security
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Server({self.host}:{self.port}, {self.security})"

    def options(self) -> dict[str, Any]:
        """Return the arguments of an `aiosmtplib` client."""
        return {
            "hostname": self.host,
            "port": self.port,
            "use_tls": self.security == "tls",
            "start_tls": self.security == "starttls",
            "username": self.user,
            "password": self.password,
        }


def server(url: str) -> Server:
    """Parse a `smtp://`, `smtp+starttls://` or `smtps://` URL.

    Only connections to the local machine go without TLS; to other hosts `smtp://` requires STARTTLS too.
    """
    if not url:
        raise NodeFailure("no mail server is configured: set RUNE_SMTP_URL", code=NO_SERVER)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, None
    if parts is None or not host or parts.scheme not in ("smtp", "smtps", "smtp+starttls"):
        raise NodeFailure("RUNE_SMTP_URL is not a valid URL such as smtps://mail.example.com", code=NO_SERVER)
    security: Security = "tls" if parts.scheme == "smtps" else "starttls"
    if parts.scheme == "smtp" and _is_local(host):
        security = "none"
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return Server(host, port or _PORTS[security], security, user, password)


async def server_for(call: NodeCall[Any]) -> tuple[Server, str | None]:
    """Return the mail server of a call and the default sender."""
    credential = await call.credential("smtp")
    if credential is None:
        found = server(call.resources.smtp_url)
        if found.password:
            call.protect(found.password, f"\0{found.user or ''}\0{found.password}")
        return found, None
    fields = credential.fields
    assert isinstance(fields, Smtp)
    check_host(credential, fields.host)
    check_connection(credential, fields.host, verified=fields.security != "none")
    return server_of(fields, insecure=bool(credential.insecure)), fields.sender


def server_of(fields: Smtp, *, insecure: bool = False) -> Server:
    """Return the mail server of a credential."""
    exposed = fields.password is not None and fields.security == "none" and not _is_local(fields.host)
    if exposed and not insecure:
        raise NodeFailure(
            f"{fields.host}: a password requires TLS; `security` must be tls or starttls",
            code=FORBIDDEN,
        )
    port = fields.port or _PORTS[fields.security]
    return Server(fields.host, port, fields.security, fields.username, fields.password)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def deliver(mail: Mail, server: Server, *, seconds: float = COMMAND_TIMEOUT_S) -> dict[str, Any]:
    """Deliver a mail and return the accepted and rejected recipients; fail only if all are rejected."""
    # Imported on first use: most processes send no mail.
    import aiosmtplib  # noqa: PLC0415

    where = f"{server.host}:{server.port}"
    try:
        async with asyncio.timeout(DELIVERY_TIMEOUT_S):
            rejected = await _send(mail, server, seconds)
    except (TimeoutError, aiosmtplib.SMTPTimeoutError) as error:
        code = "SMTP_CONNECT" if isinstance(error, aiosmtplib.SMTPConnectTimeoutError) else "SMTP_TIMEOUT"
        raise NodeFailure(f"{where} timed out", code=code) from None
    except aiosmtplib.SMTPRecipientsRefused as error:
        rejected = [_rejection(each.recipient, each.code, each.message) for each in error.recipients]
        raise NodeFailure(
            f"{where} rejected all recipients",
            code="SMTP_REJECTED",
            details={"rejected": rejected},
            permanent=all(each.code >= _PERMANENT_REPLY for each in error.recipients),
        ) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        raise NodeFailure(
            f"{where} rejected the login ({error.code})",
            code="SMTP_AUTH",
            permanent=error.code >= _PERMANENT_REPLY,
        ) from None
    except (aiosmtplib.SMTPConnectError, aiosmtplib.SMTPServerDisconnected, OSError) as error:
        raise NodeFailure(f"{where}: connection failed: {_reason(error)}", code="SMTP_CONNECT") from None
    except aiosmtplib.SMTPResponseException as error:
        raise NodeFailure(
            f"{where} rejected the mail: {error.code} {_reason(error)}",
            code="SMTP_REJECTED",
            details={"status": error.code},
            permanent=error.code >= _PERMANENT_REPLY,
        ) from None
    except aiosmtplib.SMTPException as error:
        code = "SMTP_CONNECT" if server.security != "none" else "SMTP_REJECTED"
        raise NodeFailure(f"{where}: {_reason(error)}", code=code) from None
    names = {each["address"] for each in rejected}
    return {
        "sent": True,
        "message_id": mail.message_id,
        "accepted": [each for each in mail.recipients if each not in names],
        "rejected": rejected,
    }


async def _send(mail: Mail, server: Server, seconds: float) -> list[dict[str, Any]]:
    from aiosmtplib import SMTP  # noqa: PLC0415

    context = ssl.create_default_context() if server.security != "none" else None
    client = SMTP(**server.options(), timeout=seconds, tls_context=context)
    async with client:
        responses, _ = await client.sendmail(mail.sender, list(mail.recipients), mail.raw)
    return [_rejection(name, each.code, each.message) for name, each in responses.items()]


def _rejection(address: str, code: int, message: str) -> dict[str, Any]:
    return {"address": address, "code": code, "message": message[:200]}


def _reason(error: Exception) -> str:
    return (getattr(error, "message", None) or str(error) or type(error).__name__)[:200]
