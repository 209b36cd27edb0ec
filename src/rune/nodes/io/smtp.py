"""`smtp`: a mail."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rune.core.outcome import Outcome, Output
from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.declare import Model, declare
from rune.nodes.io.files import File, Loaded, load
from rune.nodes.rules import Scalar
from rune.nodes.usage import CREDENTIAL_ERRORS

Addresses = str | list[str]
ATTACHED = 25 * 1024 * 1024
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


async def run(call: Call[Parameters]) -> Outcome:
    """One mail, one connection."""
    from rune.nodes.io.delivery import deliver  # noqa: PLC0415 - who sends no mail should not wait for it
    from rune.nodes.io.mail import compose  # noqa: PLC0415
    from rune.nodes.io.mailserver import server_for  # noqa: PLC0415

    files = await _attached(call)
    server, sender = await server_for(call)
    parameters = replace(call.parameters, from_=call.parameters.from_ or sender)
    mail = compose(parameters, key=call.idempotency_key, now=call.now, files=files)
    return Output(await deliver(mail, server))


async def _attached(call: Call[Parameters]) -> list[Loaded]:
    """The attachments with their bytes; what is announced as too large is not even fetched."""
    listed = call.parameters.attachments
    if sum(each.size or 0 for each in listed) > ATTACHED:
        raise _too_large()
    files: list[Loaded] = []
    left = ATTACHED
    for index, each in enumerate(listed):
        file = await load(each, call.blobs, call.limits.output_bytes, f"parameters.attachments[{index}]")
        left -= len(file.data)
        if left < 0:
            raise _too_large()
        files.append(file)
    return files


def _too_large() -> NodeFailure:
    return NodeFailure(
        f"parameters.attachments: more than {ATTACHED:,} bytes together", code="SMTP_TOO_LARGE"
    )
