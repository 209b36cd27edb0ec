"""A mail put together: addresses read and written anew, headers that nobody can add to."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

import msgspec

from rune.errors import NodeFailure
from rune.nodes.io.files import Loaded
from rune.nodes.rules import plain

BAD_ADDRESS = "SMTP_BAD_ADDRESS"
RECIPIENTS = 100
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
    if len(recipients) > RECIPIENTS:
        raise NodeFailure(
            f"parameters.to: {len(recipients)} recipients, at most {RECIPIENTS} are allowed", code=BAD_ADDRESS
        )
    message = EmailMessage(policy=SMTP)
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
        header: Any = SMTP.header_factory("to", text)
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
