"""What the command line asks of the broker: its topology, and the messages that nobody could serve."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from rune.adapters.rabbitmq.address import parse_address
from rune.adapters.rabbitmq.dead import DeadLetters, Letter
from rune.adapters.rabbitmq.definitions import all_exchanges, all_queues, as_text, definitions, roles
from rune.adapters.rabbitmq.topology import Topology
from rune.adapters.redis import acl
from rune.settings import Settings

MOST = 1000


class BrokerLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message on the broker that nobody could serve. Its id follows from what it says."""

    id: str
    execution: str | None
    workflow: str | None
    node: str | None
    queue: str
    code: str
    reason: str
    body: bytes


class _Named(msgspec.Struct):
    """As much of a message as names it."""

    workflow_id: str | None = None
    current_node: str | None = None


def topology(settings: Settings) -> Topology:
    """What workers with these settings declare."""
    return Topology(settings.queue_prefix, settings.queues, settings.queue_kind)


def topology_text(settings: Settings) -> str:
    """The topology for people."""
    return as_text(topology(settings))


def topology_document(settings: Settings) -> dict[str, Any]:
    """The topology as one document."""
    found = topology(settings)
    return {
        "exchanges": msgspec.to_builtins(all_exchanges(found)),
        "queues": msgspec.to_builtins(all_queues(found)),
        "roles": msgspec.to_builtins(roles(found)),
    }


def topology_definitions(settings: Settings, passwords: dict[str, str]) -> dict[str, Any]:
    """The content of a file that RabbitMQ imports, with a user for each role."""
    vhost = parse_address(settings.queue).vhost if settings.brokered else "/"
    return definitions(topology(settings), vhost, passwords)


def role_names(settings: Settings) -> list[str]:
    """The roles that get a user."""
    return list(roles(topology(settings)))


def redis_users(settings: Settings, passwords: dict[str, str]) -> str:
    """The content of a file that Redis loads, with a user for each role."""
    return acl.acl_file(settings.prefix, passwords)


def redis_roles() -> list[str]:
    """The roles that get a user of Redis."""
    return [*acl.ROLES, acl.WATCHER]


async def broker_letters(settings: Settings, limit: int = MOST) -> list[BrokerLetter]:
    """The messages that nobody could serve, the oldest first; none where there is no broker."""
    if not settings.brokered:
        return []
    return [_named(each) for each in await _dead(settings).list(limit)]


async def requeue_letter(settings: Settings, letter: str) -> int:
    """Send a message again, to where it was; how many there were."""
    return await _dead(settings).requeue(lambda each: letter_id(each) == letter)


async def drop_letter(settings: Settings, letter: str) -> int:
    """Remove a message; how many there were."""
    return await _dead(settings).discard(lambda each: letter_id(each) == letter)


def letter_id(letter: Letter) -> str:
    """Twins have the same id, and share their fate."""
    said = f"{letter.queue}\x1f{letter.code}\x1f".encode() + letter.body
    return "m" + hashlib.blake2b(said, digest_size=8).hexdigest()


def _dead(settings: Settings) -> DeadLetters:
    return DeadLetters(settings.queue, topology(settings))


def _named(letter: Letter) -> BrokerLetter:
    try:
        named = msgspec.json.decode(letter.body, type=_Named)
    except (msgspec.DecodeError, RecursionError):
        named = _Named()
    return BrokerLetter(
        id=letter_id(letter),
        execution=letter.execution,
        workflow=named.workflow_id,
        node=named.current_node,
        queue=letter.queue,
        code=letter.code,
        reason=letter.reason,
        body=letter.body,
    )
