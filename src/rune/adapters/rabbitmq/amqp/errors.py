"""What can go wrong with a broker.

AmqpError                 everything this client raises on purpose
├── BadAddress            a URL that does not say how to reach a broker
├── ConnectionRefused     the broker is there and does not let us in
├── BrokerAway            the connection is gone or stuck; also a StoreAway: an outage is nobody's fault
├── ChannelClosed         the broker refused an act and closed the channel for it
└── NotTaken              a message that was published and not taken
    ├── Unroutable        no queue is bound where it went
    └── Nacked            the broker says no to it
"""

from __future__ import annotations

from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError

REPLIES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}


class AmqpError(RuneError):
    """Something between this process and the broker."""

    code = "AMQP"


class InvalidAddressError(AmqpError):
    """A URL that does not say how to reach a broker."""

    code = "BAD_ADDRESS"


class ConnectionRefusedByBrokerError(AmqpError):
    """The broker is there and does not let us in: user, password, vhost or a setting."""

    code = "CONNECTION_REFUSED"


class BrokerUnavailableError(AmqpError, StoreUnavailableError):
    """The connection is gone or stuck. What was not confirmed may or may not have happened."""

    code = "BROKER_AWAY"


class ChannelClosedError(AmqpError):
    """The broker closed a channel, with its reason; the connection goes on."""

    code = "CHANNEL_CLOSED"

    def __init__(self, message: str, reply: int = 0, *, code: str | None = None) -> None:
        super().__init__(message, code=code or REPLIES.get(reply))
        self.reply = reply


class PublishError(AmqpError):
    """A message that was published and not taken."""

    code = "NOT_TAKEN"


class UnroutableError(PublishError):
    """No queue is bound where it went."""

    code = "NO_ROUTE"


class NackedError(PublishError):
    """The broker says no to it: a queue is full, or failed."""

    code = "NACKED"


class ProtocolError(Exception):
    """What came from the other side is not the protocol; never leaves the client."""

    def __init__(self, reply: int, text: str) -> None:
        super().__init__(text)
        self.reply = reply
