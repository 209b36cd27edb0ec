"""The topology: every exchange and queue in one table, declared as often as one likes.

Whoever publishes is checked by the exchange, so each kind of message has its own. Work has no time to live. A delay is
a queue whose messages all live equally long: RabbitMQ looks for expired ones at the head of a queue only.

Definitions: the topology as a file that RabbitMQ imports, with users who may do what their role needs.

Publishing is checked by the exchange and consuming by the queue; nobody has rights on the default exchange, which
would reach every queue, and nobody may declare: the file already has.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.connection import Connection
from rune.adapters.rabbitmq.amqp.errors import AmqpError, ChannelClosedError
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.ports.queue import LANES

DEFAULT = "default"
DELAYS_S = (5, 25, 125)  # s
DELIVERIES = 20  # of one message on a quorum queue, before it is a dead letter
ENDLESS = 2_000_000_000
"""Deliveries of what is kept to be looked at. A quorum queue that names no limit has one of 20 from 4.0 on."""
COMPLETION_DAYS = 7
STATUS_HOURS = 1
MAX_STATUSES = 100_000
QUORUM_TTL = (
    3,
    10,
)  # the first version whose quorum queues know a time to live, and dead-letter without loss
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")
TAKEN = {"high", "low", "dead", "dlx", "retry"}
RESERVED_SUFFIX = ".queue"
"""What is put behind the name of a queue that would otherwise be called as something else of the topology."""

Kind = Literal["classic", "quorum"]


class InvalidQueueNameError(AmqpError):
    """A queue that cannot be called so."""

    code = "BAD_QUEUE_NAME"


class TopologyMismatchError(AmqpError):
    """The broker has a queue or an exchange of this name, made otherwise."""

    code = "TOPOLOGY_MISMATCH"


class Exchange(msgspec.Struct, frozen=True):
    """A direct one routes to the queue that the key names; a fanout has one queue behind it."""

    name: str
    kind: Literal["direct", "fanout"] = "direct"


class WorkQueue(msgspec.Struct, frozen=True):
    """A queue, what it was declared with, and the exchange that feeds it."""

    name: str
    exchange: str
    arguments: dict[str, Any]


class Topology:
    """What a prefix and the named queues amount to. `kind` says whether what must not be lost is replicated."""

    def __init__(
        self, prefix: str = "workflow", queues: Sequence[str] = (DEFAULT,), kind: Kind = "classic"
    ) -> None:
        self.prefix = prefix
        self.queues = tuple(dict.fromkeys(queues))
        self.kind = kind
        for name in self.queues:
            if not NAME.fullmatch(name):
                raise InvalidQueueNameError(f"`{name}`: letters, digits, - and _, at most {MAX_ID_LENGTH}")
        self.execution = f"{prefix}.execution"
        self.dead = f"{self.execution}.dead"
        self.dead_exchange = f"{self.execution}.dlx"
        self.status = f"{prefix}.node.status"
        self.completion = f"{prefix}.completion"
        self.started = f"{prefix}.started"

    def lane(self, queue: str, lane: str) -> str:
        """The name of a queue's lane, which is its routing key as well."""
        name = self.execution if queue == DEFAULT else f"{self.execution}.{queue}"
        if queue in TAKEN:
            name += RESERVED_SUFFIX
        return name if lane == "normal" else f"{name}.{lane}"

    def queue_of(self, key: str) -> str | None:
        """The queue whose lane has this name; None if it is none of this prefix."""
        if key in (self.execution, *(f"{self.execution}.{lane}" for lane in LANES)):
            return DEFAULT
        name = key.removeprefix(f"{self.execution}.")
        if name == key:
            return None
        for lane in LANES:
            name = name.removesuffix(f".{lane}")
        bare = name.removesuffix(RESERVED_SUFFIX)
        if bare in TAKEN:
            return bare if bare != name else None
        return name if NAME.fullmatch(name) else None

    def extended(self, queues: Iterable[str]) -> Topology:
        """The same with more queues."""
        return Topology(self.prefix, (*self.queues, *queues), self.kind)

    def retry(self, delay: int) -> str:
        """The exchange, and the queue behind it, that holds messages for so many seconds."""
        return f"{self.execution}.retry.{delay}s"

    @property
    def work(self) -> tuple[str, ...]:
        """The queues that workers read."""
        return tuple(self.lane(queue, lane) for queue in self.queues for lane in LANES)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        one_each = (self.dead_exchange, *map(self.retry, DELAYS_S))
        return (
            *(Exchange(name) for name in (self.execution, self.status, self.completion)),
            *(Exchange(name, "fanout") for name in one_each),
        )

    @property
    def elsewhere(self) -> WorkQueue:
        """Starts for another engine. The queue is theirs, so nobody insists on what it was declared with."""
        return WorkQueue(self.started, self.started, {})

    def table(self, version: tuple[int, ...] = QUORUM_TTL) -> tuple[WorkQueue, ...]:
        """Every queue, for a broker of this version."""
        kept = self._kept(version)
        timed = kept if version >= QUORUM_TTL else {"x-queue-type": "classic"}
        work = {**kept, "x-dead-letter-exchange": self.dead_exchange}
        if self.kind == "quorum":
            work["x-delivery-limit"] = DELIVERIES
        plain = {"x-queue-type": "classic"}
        return (
            *(WorkQueue(name, self.execution, work) for name in self.work),
            *(
                WorkQueue(
                    self.retry(delay),
                    self.retry(delay),
                    {**timed, "x-message-ttl": delay * 1000, "x-dead-letter-exchange": self.execution},
                )
                for delay in DELAYS_S
            ),
            WorkQueue(self.dead, self.dead_exchange, _checked(kept["x-queue-type"])),
            WorkQueue(
                self.completion,
                self.completion,
                {**_checked(timed["x-queue-type"]), "x-message-ttl": COMPLETION_DAYS * 86_400_000},
            ),
            WorkQueue(
                self.status,
                self.status,
                {
                    **plain,
                    "x-message-ttl": STATUS_HOURS * 3_600_000,
                    "x-max-length": MAX_STATUSES,
                    "x-overflow": "drop-head",
                },
            ),
        )

    def _kept(self, version: tuple[int, ...]) -> dict[str, Any]:
        """Arguments of queues whose messages matter."""
        if self.kind == "classic":
            return {"x-queue-type": "classic"}
        if version < QUORUM_TTL:
            return {"x-queue-type": "quorum"}
        return {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }


def _checked(kind: str) -> dict[str, Any]:
    """Arguments of a queue whose messages may be taken and put back as often as somebody likes."""
    limit = {"x-delivery-limit": ENDLESS} if kind == "quorum" else {}
    return {"x-queue-type": kind, **limit}


async def declare(connection: Connection, topology: Topology) -> None:
    """Make sure that everything is there. A user who may not declare only looks."""
    wanted: list[Exchange | WorkQueue] = [*topology.exchanges, *topology.table(connection.version)]
    channel, looking = await connection.channel(), False
    for each in wanted:
        try:
            if not looking:
                await _make(channel, each)
                continue
        except ChannelClosedError as closed:
            if closed.reply == 406:
                raise TopologyMismatchError(explanation(each, topology, closed.message)) from None
            if closed.reply != 403:
                raise
            looking = True
            channel = await connection.channel()
        channel = await _check_existing(connection, channel, each)
    await channel.close()


async def find_or_make(connection: Connection, queue: WorkQueue) -> None:
    """A queue of somebody else: used as it is, made if it is missing, with a direct exchange before it. Who may not
    declare needs all of it to be there."""
    channel = await connection.channel()
    try:
        await channel.declare_queue(queue.name, passive=True)
    except ChannelClosedError as closed:
        if closed.reply != 404:
            raise
        channel = await connection.channel()
        await channel.declare_queue(queue.name, queue.arguments)
    exchange = Exchange(queue.exchange)
    try:
        await _make(channel, exchange)
        await channel.bind(queue.name, exchange.name, queue.name)
    except ChannelClosedError as closed:
        if closed.reply != 403:
            raise
        channel = await _check_existing(connection, await connection.channel(), exchange)
    await channel.close()


async def _make(channel: Channel, wanted: Exchange | WorkQueue) -> None:
    if isinstance(wanted, Exchange):
        await channel.declare_exchange(wanted.name, wanted.kind)
    else:
        await channel.declare_queue(wanted.name, wanted.arguments)
        await channel.bind(wanted.name, wanted.exchange, wanted.name)


async def _check_existing(connection: Connection, channel: Channel, wanted: Exchange | WorkQueue) -> Channel:
    """Raises if it is not there; answers a channel that can be used further."""
    try:
        if isinstance(wanted, Exchange):
            await channel.declare_exchange(wanted.name, wanted.kind, passive=True)
        else:
            await channel.declare_queue(wanted.name, passive=True)
    except ChannelClosedError as closed:
        if closed.reply != 403:
            raise
        return await connection.channel()
    return channel


def explanation(wanted: Exchange | WorkQueue, topology: Topology, told: str) -> str:
    """What to do about something that exists and was made otherwise."""
    kind = "exchange" if isinstance(wanted, Exchange) else "queue"
    lines = [
        f"the {kind} `{wanted.name}` exists and was declared otherwise ({told}).",
        "What a queue was declared with cannot be changed. Either keep what it was made with (RUNE_QUEUE_KIND),",
        "or stop the workers and delete it, then start again: hints that were in it are sent again from the state;",
    ]
    if kind == "queue":
        lines.append(f"    rabbitmqctl delete_queue --vhost <vhost> {wanted.name}")
    lines.append(
        f"or use another prefix than `{topology.prefix}` (RUNE_QUEUE_PREFIX) until the old queues are empty."
    )
    return "\n".join(lines)


class Rights(msgspec.Struct, frozen=True):
    """What a role may publish to and read from."""

    publish: tuple[str, ...]
    read: tuple[str, ...]


def roles(topology: Topology) -> dict[str, Rights]:
    """Workers pass work on and report; the master, as which schedulers come too, starts and ends executions, reports
    that, listens, and looks after dead letters. Both may start what another engine runs; a worker may take that
    engine's place."""
    retries = tuple(map(topology.retry, DELAYS_S))
    return {
        "worker": Rights(
            (
                topology.execution,
                *retries,
                topology.dead_exchange,
                topology.status,
                topology.completion,
                topology.started,
            ),
            (*topology.work, topology.started),
        ),
        "master": Rights(
            (topology.execution, topology.started, topology.status, topology.completion),
            (topology.status, topology.completion, topology.dead),
        ),
    }


def definitions(
    topology: Topology,
    vhost: str,
    passwords: dict[str, str],
    version: tuple[int, ...] = QUORUM_TTL,
) -> dict[str, Any]:
    """The content of a definitions file. `passwords`: of the roles that get a user, who is called `rune-<role>`."""
    return {
        "vhosts": [{"name": vhost}],
        "users": [_user(role, password) for role, password in passwords.items()],
        "permissions": [_permission(role, roles(topology)[role], vhost) for role in passwords],
        "exchanges": [_exchange(each, vhost) for each in all_exchanges(topology)],
        "queues": [_queue(each, vhost) for each in all_queues(topology, version)],
        "bindings": [_binding(each, vhost) for each in all_queues(topology, version)],
    }


def all_exchanges(topology: Topology) -> tuple[Exchange, ...]:
    """Those that workers declare, and the one before the queue of another engine."""
    return (*topology.exchanges, Exchange(topology.elsewhere.exchange))


def all_queues(topology: Topology, version: tuple[int, ...] = QUORUM_TTL) -> tuple[WorkQueue, ...]:
    """Those that workers declare, and the one of another engine. RabbitMQ leaves queues that exist as they are."""
    return (*topology.table(version), topology.elsewhere)


def _user(role: str, password: str) -> dict[str, Any]:
    return {
        "name": user_name(role),
        "password_hash": password_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": [],
    }


def _permission(role: str, rights: Rights, vhost: str) -> dict[str, Any]:
    write, read = exactly(rights.publish), exactly(rights.read)
    return {"user": user_name(role), "vhost": vhost, "configure": "^$", "write": write, "read": read}


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }


def _queue(queue: WorkQueue, vhost: str) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": False,
        "arguments": queue.arguments,
    }


def _binding(queue: WorkQueue, vhost: str) -> dict[str, Any]:
    return {
        "source": queue.exchange,
        "vhost": vhost,
        "destination": queue.name,
        "destination_type": "queue",
        "routing_key": queue.name,
        "arguments": {},
    }


def user_name(role: str) -> str:
    return f"rune-{role}"


def exactly(names: Iterable[str]) -> str:
    """A pattern for these names and no others."""
    return f"^({'|'.join(re.escape(each) for each in names)})$"


def password_hash(password: str) -> str:
    """As RabbitMQ stores it: a salt of four bytes, and SHA-256 over salt and password."""
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def as_text(topology: Topology) -> str:
    """The topology for people."""
    lines = ["exchanges"]
    lines += [f"  {each.name:36} {each.kind}" for each in all_exchanges(topology)]
    lines.append("queues")
    for queue in all_queues(topology):
        said = ", ".join(f"{name}={value}" for name, value in sorted(queue.arguments.items()))
        lines.append(f"  {queue.name:36} from {queue.exchange}; {said}")
    for role, rights in roles(topology).items():
        lines.append(f"role {role}")
        lines.append(f"  publishes to {', '.join(rights.publish)}")
        lines.append(f"  reads {', '.join(rights.read)}")
    return "\n".join(lines)
