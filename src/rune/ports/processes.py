"""Processes: the registry of a cluster, and the owner process of an embedded database.

The registry is for operators; leases, not heartbeats, decide which worker runs a token. An embedded database has one
owner process, the only one that writes. Other processes send it their calls, and take over the ownership when it exits.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from rune.ports.journal import StoreUnavailableError

HEARTBEAT_S = 5.0
"""Default interval between two heartbeats of a process, in seconds."""

EXPIRY_S = 15.0
"""Default time without a heartbeat after which a process is no longer listed, in seconds."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str
    build: str = ""  # tells builds of one version apart
    started_at: int
    seen_at: int = 0
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # node types that it can run
    slots: int = 0
    busy: int = 0
    draining: bool = False
    heartbeat_s: float = HEARTBEAT_S
    expiry_s: float = EXPIRY_S


class ProcessRegistry(Protocol):
    """The recently active processes of a cluster."""

    async def heartbeat(self, member: ProcessInfo) -> None:
        """Record that a process is alive, with the time of the store."""

    async def leave(self, name: str) -> None:
        """Remove a process that shuts down."""

    async def list(self) -> list[ProcessInfo]:
        """Return the processes whose last heartbeat is at most their `expiry_s` old, the longest-running first."""


RPC_METHODS = (
    "executions.start_definition",
    "executions.start",
    "executions.signal",
    "executions.cancel",
    "executions.pause",
    "executions.resume",
    "executions.retry",
    "executions.rerun",
    "executions.delete_ended",
    "executions.running",
    "workflows.deploy",
    "workflows.set_alias",
    "workflows.archive",
    "dead_letters.list",
    "dead_letters.requeue",
    "dead_letters.discard",
    "triggers.list",
    "triggers.find",
    "triggers.enable",
    "triggers.rotate",
    "credentials.add",
    "credentials.rotate",
    "credentials.remove",
    "credentials.reencrypt",
    "credentials.grant",
    "credentials.withdraw",
    "access.create_key",
    "access.revoke_key",
    "limits.limit_workflow",
    "limits.limit_key",
)
"""The methods that other processes can call on the owner. It rejects all others."""

IDEMPOTENT_METHODS = {
    "executions.start_definition": "execution",
    "executions.start": "execution",
    "executions.signal": "key",
    "executions.retry": "key",
    "executions.rerun": "key",
}
"""The argument by which the owner recognises a repeated call; the client generates a value if there is none."""


class FileInUseError(StoreUnavailableError):
    """Another process owns the database file."""


class NoOwnerError(StoreUnavailableError):
    """No process listens on the owner's socket: there is no owner, or it is starting or shutting down."""


class OwnerLostError(StoreUnavailableError):
    """The connection to the owner broke before it replied. The call may have been carried out."""
