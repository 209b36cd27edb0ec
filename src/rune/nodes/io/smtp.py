"""`smtp`: a mail."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rune.core.outcome import Outcome, Output
from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.declare import Model, declare
from rune.nodes.rules import Scalar

Addresses = str | list[str]


class Attachment(Model, kw_only=True, frozen=True):
    """One attached file."""

    filename: Annotated[str, Meta(min_length=1, description="Name the file has in the mail.")]
    content: Annotated[Any, Meta(description="Text, or anything else as JSON.")]
    content_type: Annotated[str | None, Meta(description="Media type. Default: by the file's name.")] = None
    encoding: Annotated[Literal["text", "base64"], Meta(description="How `content` is written.")] = "text"


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
    attachments: Annotated[list[Attachment], Meta(description="Attached files.")] = msgspec.field(
        default_factory=list
    )


TYPE = declare(
    "smtp",
    Parameters,
    summary="Sends a mail.",
    doc="Sends one mail through the server of `RUNE_SMTP_URL`. Addresses are parsed and written anew, so no "
    "value can "
    "add a header.",
    output="`{sent, message_id, accepted, rejected}`.",
    errors={
        "SMTP_CONNECT": "no connection to the server",
        "SMTP_TIMEOUT": "the server did not answer in time",
        "SMTP_AUTH": "the server refuses the login",
        "SMTP_REJECTED": "the server refuses the mail or all recipients",
        "SMTP_BAD_ADDRESS": "an address is not valid, or there are none or too many",
        "SMTP_NO_SERVER": "no server is configured",
        "SMTP_ATTACHMENTS": "attachments cannot be sent by this version",
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: Call[Parameters]) -> Outcome:
    """One mail, one connection."""
    from rune.nodes.io.delivery import deliver  # noqa: PLC0415 - who sends no mail should not wait for it
    from rune.nodes.io.mail import compose  # noqa: PLC0415
    from rune.nodes.io.mailserver import server  # noqa: PLC0415

    if call.parameters.attachments:
        raise NodeFailure(
            "parameters.attachments: this version sends no attachments", code="SMTP_ATTACHMENTS"
        )
    mail = compose(call.parameters, key=call.key, now=call.now)
    return Output(await deliver(mail, server(call.world.smtp_url)))
