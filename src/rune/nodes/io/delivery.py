"""Hands a mail to its server."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiosmtplib
from aiosmtplib import SMTP

from rune.errors import NodeFailure
from rune.nodes.io.mail import Mail
from rune.nodes.io.mailserver import Server

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
