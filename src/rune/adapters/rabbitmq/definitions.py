"""Definitions: the topology as a file that RabbitMQ imports, with users who may do what their role needs.

Publishing is checked by the exchange and consuming by the queue; nobody has rights on the default exchange, which
would reach every queue, and nobody may declare: the file already has.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from rune.adapters.rabbitmq.topology import DELAYS, QUORUM_TTL, Exchange, Topology, WorkQueue


class Rights(msgspec.Struct, frozen=True):
    """What a role may publish to and read from."""

    publish: tuple[str, ...]
    read: tuple[str, ...]


def roles(topology: Topology) -> dict[str, Rights]:
    """Workers pass work on and report; the master, as which schedulers come too, starts and ends executions, reports
    that, listens, and looks after dead letters. Both may start what another engine runs; a worker may take that
    engine's place."""
    retries = tuple(map(topology.retry, DELAYS))
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
