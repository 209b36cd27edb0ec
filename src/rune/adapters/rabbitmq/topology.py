"""Exchanges and queues on RabbitMQ, their idempotent declaration, and their export as a definitions file with users.

RabbitMQ checks permissions to publish per exchange, so each kind of message has its own. Work messages never expire.
Each delay has its own queue with one TTL, because RabbitMQ expires messages at the head of a queue only. Users of the
definitions file may neither declare anything nor publish to the default exchange, which reaches every queue.

`rune doctor` inspects the broker: its version, missing rights, missing queues and queues with other arguments.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.amqp.client import connect
from rune.adapters.rabbitmq.amqp.connection import Connection, parse_address
from rune.adapters.rabbitmq.amqp.errors import AmqpError, ChannelClosedError, PublishError
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.core.definition.model import DEFAULT_QUEUE
from rune.ports.queue import LANES

log = logging.getLogger("rune.rabbitmq")

DELAYS_S = (5, 25, 125)
DELIVERIES = 20
"""Deliveries of a message on a quorum queue before it becomes a dead letter."""

UNLIMITED_DELIVERIES = 2_000_000_000
"""Delivery limit of queues that operators read. From 4.0 on, quorum queues without a limit have one of 20."""

COMPLETION_DAYS = 7
STATUS_HOURS = 1
MAX_STATUSES = 100_000
MAX_COMPLETIONS = 100_000
"""The truth is in the journal: of more completions than this, that no consumer has read, the oldest are dropped."""

QUORUM_TTL = (3, 10)
"""First version whose quorum queues support a TTL and dead-letter without loss."""

NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")
RESERVED_NAMES = {"high", "low", "dead", "dlx", "retry"}
RESERVED_SUFFIX = ".queue"
"""Appended to the name of a queue that would collide with another name of the topology."""

Kind = Literal["classic", "quorum"]


_COMPLETION_BOUND = {"x-max-length": MAX_COMPLETIONS, "x-overflow": "drop-head"}


class InvalidQueueNameError(AmqpError):
    """An invalid queue name."""

    code = "BAD_QUEUE_NAME"


class TopologyMismatchError(AmqpError):
    """The broker has a queue or exchange of this name with other arguments."""

    code = "TOPOLOGY_MISMATCH"


class Exchange(msgspec.Struct, frozen=True):
    """A direct exchange routes to the queue named by the key; a fanout exchange has one queue."""

    name: str
    kind: Literal["direct", "fanout"] = "direct"


class WorkQueue(msgspec.Struct, frozen=True):
    """A queue, its arguments, and the exchange it is bound to."""

    name: str
    exchange: str
    arguments: dict[str, Any]


class Topology:
    """All names for a prefix and its named queues. With the kind `quorum`, queues that must not lose messages are
    replicated."""

    def __init__(
        self,
        prefix: str = "workflow",
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        kind: Kind = "classic",
        *,
        consume_statuses: bool = True,
    ) -> None:
        """`consume_statuses`: whether the role `master` reads statuses and completions; another program does if not."""
        self.prefix = prefix
        self.consume_statuses = consume_statuses
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
        """Return the name of a queue's lane, which is also its routing key."""
        name = self.execution if queue == DEFAULT_QUEUE else f"{self.execution}.{queue}"
        if queue in RESERVED_NAMES:
            name += RESERVED_SUFFIX
        return name if lane == "normal" else f"{name}.{lane}"

    def queue_of(self, key: str) -> str | None:
        """Return the queue whose lane has this name, None if the name does not belong to this prefix."""
        if key in (self.execution, *(f"{self.execution}.{lane}" for lane in LANES)):
            return DEFAULT_QUEUE
        name = key.removeprefix(f"{self.execution}.")
        if name == key:
            return None
        for lane in LANES:
            name = name.removesuffix(f".{lane}")
        bare = name.removesuffix(RESERVED_SUFFIX)
        if bare in RESERVED_NAMES:
            return bare if bare != name else None
        return name if NAME.fullmatch(name) else None

    def extended(self, queues: Iterable[str]) -> Topology:
        """Return a topology with more queues."""
        queues = (*self.queues, *queues)
        return Topology(self.prefix, queues, self.kind, consume_statuses=self.consume_statuses)

    def retry(self, delay: int) -> str:
        """Return the name of the exchange and queue that delay messages by this many seconds."""
        return f"{self.execution}.retry.{delay}s"

    @property
    def work(self) -> tuple[str, ...]:
        """The queues that workers consume."""
        return tuple(self.lane(queue, lane) for queue in self.queues for lane in LANES)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        one_each = (self.dead_exchange, *map(self.retry, DELAYS_S))
        return (
            *(Exchange(name) for name in (self.execution, self.status, self.completion)),
            *(Exchange(name, "fanout") for name in one_each),
        )

    @property
    def legacy(self) -> WorkQueue:
        """The queue of starts for the legacy executor. That executor owns it, so any arguments are accepted."""
        return WorkQueue(self.started, self.started, {})

    def table(self, version: tuple[int, ...] = QUORUM_TTL) -> tuple[WorkQueue, ...]:
        """Return every queue, for a broker of this version."""
        durable = self._durable_arguments(version)
        timed = durable if version >= QUORUM_TTL else {"x-queue-type": "classic"}
        work = {**durable, "x-dead-letter-exchange": self.dead_exchange}
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
            WorkQueue(self.dead, self.dead_exchange, _inspected_arguments(durable["x-queue-type"])),
            WorkQueue(
                self.completion,
                self.completion,
                {
                    **_inspected_arguments(timed["x-queue-type"]),
                    "x-message-ttl": COMPLETION_DAYS * 86_400_000,
                    **_COMPLETION_BOUND,
                },
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

    def _durable_arguments(self, version: tuple[int, ...]) -> dict[str, Any]:
        """Return the arguments of queues that must not lose messages."""
        if self.kind == "classic":
            return {"x-queue-type": "classic"}
        if version < QUORUM_TTL:
            return {"x-queue-type": "quorum"}
        return {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }


def _inspected_arguments(kind: str) -> dict[str, Any]:
    """Return the arguments of a queue whose messages may be read and requeued any number of times."""
    limit = {"x-delivery-limit": UNLIMITED_DELIVERIES} if kind == "quorum" else {}
    return {"x-queue-type": kind, **limit}


async def declare(connection: Connection, topology: Topology) -> None:
    """Declare the whole topology. For a user without permission to declare, check that everything exists."""
    wanted: list[Exchange | WorkQueue] = [*topology.exchanges, *topology.table(connection.version)]
    channel, check_only = await connection.channel(), False
    for each in wanted:
        try:
            if not check_only:
                await _declare_one(channel, each)
                continue
        except ChannelClosedError as closed:
            if closed.reply == 406:
                channel = await _accept_unbounded(connection, topology, each, closed.message)
                continue
            if closed.reply != 403:
                raise
            check_only = True
            channel = await connection.channel()
        channel = await _check_existing(connection, channel, each)
    await channel.close()


async def _accept_unbounded(
    connection: Connection, topology: Topology, wanted: Exchange | WorkQueue, reason: str
) -> Channel:
    """Accept the queue of completions as earlier versions declared it, without a bound; raise for any other mismatch.
    Return an open channel."""
    if isinstance(wanted, WorkQueue) and wanted.name == topology.completion:
        arguments = {
            name: wanted.arguments[name] for name in wanted.arguments if name not in _COMPLETION_BOUND
        }
        channel = await connection.channel()
        with contextlib.suppress(ChannelClosedError):
            await _declare_one(channel, msgspec.structs.replace(wanted, arguments=arguments))
            log.warning(
                "the queue %s has no bound, because an earlier version declared it; delete it to have it declared anew",
                wanted.name,
            )
            return channel
    raise TopologyMismatchError(explanation(wanted, topology, reason)) from None


async def find_or_declare(connection: Connection, queue: WorkQueue) -> None:
    """Declare a queue of another owner and its direct exchange unless it exists, whatever its arguments are. For a user
    without permission to declare, both must exist."""
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
        await _declare_one(channel, exchange)
        await channel.bind(queue.name, exchange.name, queue.name)
    except ChannelClosedError as closed:
        if closed.reply != 403:
            raise
        channel = await _check_existing(connection, await connection.channel(), exchange)
    await channel.close()


async def _declare_one(channel: Channel, wanted: Exchange | WorkQueue) -> None:
    if isinstance(wanted, Exchange):
        await channel.declare_exchange(wanted.name, wanted.kind)
    else:
        await channel.declare_queue(wanted.name, wanted.arguments)
        await channel.bind(wanted.name, wanted.exchange, wanted.name)


async def _check_existing(connection: Connection, channel: Channel, wanted: Exchange | WorkQueue) -> Channel:
    """Raise if an exchange or queue does not exist; return a channel that is still open."""
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


def explanation(wanted: Exchange | WorkQueue, topology: Topology, reason: str) -> str:
    """Return how to resolve a topology mismatch."""
    kind = "exchange" if isinstance(wanted, Exchange) else "queue"
    lines = [
        f"the {kind} `{wanted.name}` exists and was declared with other arguments ({reason}).",
    ]
    if kind == "queue":
        lines += [
            "The arguments of a queue cannot be changed. Either use the kind it was declared with (RUNE_QUEUE_KIND),",
            "or stop the workers, delete it and start them again: its messages are sent again from the state;",
            f"    rabbitmqctl delete_queue --vhost <vhost> {wanted.name}",
        ]
    else:
        lines += [
            "The kind and the arguments of an exchange cannot be changed. Stop the workers, delete it and start them",
            "again: it has no messages, and is declared and bound anew;",
            f"    rabbitmqadmin --vhost=<vhost> delete exchange name={wanted.name}",
        ]
    lines.append(
        f"or use another prefix than `{topology.prefix}` (RUNE_QUEUE_PREFIX) until the old queues are empty."
    )
    return "\n".join(lines)


class Rights(msgspec.Struct, frozen=True):
    """Exchanges that a role may publish to and queues that it may consume."""

    publish: tuple[str, ...]
    read: tuple[str, ...]


def roles(topology: Topology) -> dict[str, Rights]:
    """Return the rights of each role. Workers send tokens and publish statuses; `master` is the role of API and
    scheduler processes, which start and end executions, read statuses unless another program does, and handle dead
    letters. Both may start executions of the legacy executor; a worker may replace that executor. `external` is the
    program that reads statuses and completions in place of API processes; it may start executions, too."""
    retries = tuple(map(topology.retry, DELAYS_S))
    events = (topology.status, topology.completion) if topology.consume_statuses else ()
    external = (
        {} if events else {"external": Rights((topology.execution,), (topology.status, topology.completion))}
    )
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
            (*events, topology.dead),
        ),
        **external,
    }


def definitions(
    topology: Topology,
    vhost: str,
    passwords: dict[str, str],
    version: tuple[int, ...] = QUORUM_TTL,
    max_dead: int = 0,
) -> dict[str, Any]:
    """Return the content of a definitions file with a user `rune-<role>` for each role that has a password.

    `max_dead` bounds the dead letters, by a policy: the arguments of a declared queue cannot be changed. 0: no bound.
    """
    return {
        "vhosts": [{"name": vhost}],
        "users": [_user(role, password) for role, password in passwords.items()],
        "permissions": [_permission(role, roles(topology)[role], vhost) for role in passwords],
        "exchanges": [_exchange(each, vhost) for each in all_exchanges(topology)],
        "queues": [_queue(each, vhost) for each in all_queues(topology, version)],
        "bindings": [_binding(each, vhost) for each in all_queues(topology, version)],
        "policies": [_dead_policy(topology, vhost, max_dead)] if max_dead else [],
    }


def all_exchanges(topology: Topology) -> tuple[Exchange, ...]:
    """Return the exchanges that workers declare and the one of the legacy executor."""
    return (*topology.exchanges, Exchange(topology.legacy.exchange))


def all_queues(topology: Topology, version: tuple[int, ...] = QUORUM_TTL) -> tuple[WorkQueue, ...]:
    """Return the queues that workers declare and the one of the legacy executor. An import does not change existing
    queues."""
    return (*topology.table(version), topology.legacy)


def _user(role: str, password: str) -> dict[str, Any]:
    return {
        "name": user_name(role),
        "password_hash": password_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": [],
    }


def _permission(role: str, rights: Rights, vhost: str) -> dict[str, Any]:
    write, read = exact_pattern(rights.publish), exact_pattern(rights.read)
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


def _dead_policy(topology: Topology, vhost: str, max_length: int) -> dict[str, Any]:
    return {
        "name": f"{topology.dead}.bound",
        "vhost": vhost,
        "pattern": exact_pattern([topology.dead]),
        "apply-to": "queues",
        "priority": 0,
        "definition": {"max-length": max_length, "overflow": "drop-head"},
    }


def user_name(role: str) -> str:
    return f"rune-{role}"


def exact_pattern(names: Iterable[str]) -> str:
    """Return a regular expression that matches these names only."""
    return f"^({'|'.join(re.escape(each) for each in names)})$"


def password_hash(password: str) -> str:
    """Return a password as RabbitMQ stores it: a four-byte salt and SHA-256 over salt and password."""
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def as_text(topology: Topology) -> str:
    """Return the topology as readable text."""
    lines = ["exchanges"]
    lines += [f"  {each.name:36} {each.kind}" for each in all_exchanges(topology)]
    lines.append("queues")
    for queue in all_queues(topology):
        arguments = ", ".join(f"{name}={value}" for name, value in sorted(queue.arguments.items()))
        lines.append(f"  {queue.name:36} from {queue.exchange}; {arguments}")
    for role, rights in roles(topology).items():
        lines.append(f"role {role}")
        lines.append(f"  publishes to {', '.join(rights.publish)}")
        lines.append(f"  reads {', '.join(rights.read)}")
    return "\n".join(lines)


REFUSED, MISSING, DIFFERENT = 403, 404, 406
UNBOUND_KEY = "doctor"
"""A routing key that no queue is bound to."""

Probe = Callable[[Channel], Awaitable[Any]]


async def inspect(url: str, topology: Topology) -> dict[str, Any]:
    """Return findings by the field names of the inspection. Declares nothing and removes no message.

    A user named after a role is checked for that role; any other user for a worker and, failing that, for the master.
    """
    user = parse_address(url).user
    needs = _needs(topology)
    named = [role for role in needs if user == user_name(role)]
    connection = await connect(url, name="doctor")
    try:
        found = {
            role: await _missing_rights(connection, needs[role]) for role in named or ("worker", "master")
        }
        role = next((role for role, (lacks, _) in found.items() if not lacks), next(iter(found)))
        lacks, missing = found[role]
        return {
            "rabbitmq": ".".join(map(str, connection.version)),
            "queue_role": role,
            "queue_lacks": lacks,
            "queue_missing": missing,
            "queue_differs": await _first_mismatch(connection, topology),
        }
    finally:
        await connection.close()


def _needs(topology: Topology) -> dict[str, Rights]:
    """Return the rights of each role that can be probed. Fanout exchanges are left out: a probe would arrive in their
    queues."""
    direct = (topology.execution, topology.status, topology.completion)
    return {
        role: Rights(
            tuple(each for each in direct if each in rights.publish),
            tuple(each for each in rights.read if each != topology.started),
        )
        for role, rights in roles(topology).items()
    }


async def _first_mismatch(connection: Connection, topology: Topology) -> str:
    """Return the first queue whose arguments differ from the settings. Declaring an existing queue changes nothing; a
    user without permission to declare learns nothing."""
    for queue in topology.table(connection.version):
        if not await _refusal(connection, partial(_find_queue, queue.name)):
            code = await _refusal(connection, partial(_declare_queue, queue))
            if code in (REFUSED, DIFFERENT):
                return queue.name if code == DIFFERENT else ""
    return ""


async def _find_queue(queue: str, channel: Channel) -> None:
    await channel.declare_queue(queue, passive=True)


async def _declare_queue(queue: WorkQueue, channel: Channel) -> None:
    await channel.declare_queue(queue.name, queue.arguments)


async def _missing_rights(connection: Connection, rights: Rights) -> tuple[tuple[str, ...], int]:
    """Return the rights that are missing and how many queues and exchanges do not exist."""
    lacks: list[str] = []
    missing = 0
    for word, names, probe in (("read", rights.read, _try_read), ("write", rights.publish, _try_write)):
        for name in names:
            code = await _refusal(connection, partial(probe, name))
            lacks += [f"{word} {name}"] if code == REFUSED else []
            missing += code == MISSING
    return tuple(lacks), missing


async def _refusal(connection: Connection, probe: Probe) -> int:
    """Return the reply code with which the broker rejects a probe, 0 if it accepts it."""
    channel = await connection.channel()
    try:
        await probe(channel)
        await channel.close()
    except ChannelClosedError as closed:
        return closed.reply
    return 0


async def _try_read(queue: str, channel: Channel) -> None:
    declared = await channel.declare_queue(queue, passive=True)
    # Reading a message would count as one of its deliveries.
    if declared.message_count:
        return
    found = await channel.get(queue)
    if found is not None:
        channel.nack(found.tag, requeue=True)


async def _try_write(exchange: str, channel: Channel) -> None:
    await channel.confirm()
    try:
        await channel.publish(exchange, UNBOUND_KEY, b"{}")
    except PublishError:
        # Expected: no queue is bound to this key.
        return
