"""Errors of the AMQP client.

AmqpError                               base class of all errors below
├── InvalidAddressError                 a URL that cannot be used
├── ConnectionRefusedByBrokerError      the broker rejects the login, the vhost or a setting
├── BrokerUnavailableError              the connection is lost or stuck; also a StoreUnavailableError
├── ChannelClosedError                  the broker rejected a command and closed the channel
└── PublishError                        a published message was not accepted
    ├── UnroutableError                 no queue is bound to its routing key
    └── NackedError                     the broker rejected it
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
    code = "AMQP"


class InvalidAddressError(AmqpError):
    """A broker URL that cannot be used."""

    code = "BAD_ADDRESS"


class ConnectionRefusedByBrokerError(AmqpError):
    """The broker rejects the connection because of user, password, vhost or a setting."""

    code = "CONNECTION_REFUSED"


class BrokerUnavailableError(AmqpError, StoreUnavailableError):
    """The connection is lost or stuck. Unconfirmed commands may or may not have been executed."""

    code = "BROKER_AWAY"


class ChannelClosedError(AmqpError):
    """The broker closed a channel and gave a reason; the connection stays open."""

    code = "CHANNEL_CLOSED"

    def __init__(self, message: str, reply: int = 0, *, code: str | None = None) -> None:
        super().__init__(message, code=code or REPLIES.get(reply))
        self.reply = reply


class PublishError(AmqpError):
    """A published message that the broker did not accept."""

    code = "NOT_TAKEN"


class UnroutableError(PublishError):
    """No queue is bound to the routing key of the message."""

    code = "NO_ROUTE"


class NackedError(PublishError):
    """The broker rejected the message: a queue is full or failed."""

    code = "NACKED"


class ProtocolError(Exception):
    """The broker violated the protocol; never raised to callers of the client."""

    def __init__(self, reply: int, text: str) -> None:
        super().__init__(text)
        self.reply = reply
