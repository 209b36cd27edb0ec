"""The fleet: the processes that take part, as they show themselves. For people; leases decide who works.

The owner: the one process that writes an embedded file. Others ask it, and one of them follows when it goes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from rune.ports.journal import StoreUnavailableError

HEARTBEAT_S = 5.0
"""How often a process shows that it is there, in seconds."""

EXPIRY_S = 15.0
"""After how long without a sign it counts as gone."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    name: str
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str
    started_at: int
    seen_at: int = 0
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # the node types that it can run
    slots: int = 0
    busy: int = 0
    draining: bool = False


class ProcessRegistry(Protocol):
    """Who is there."""

    async def heartbeat(self, member: ProcessInfo) -> None:
        """This process is there; the time of it is the store's."""

    async def leave(self, name: str) -> None:
        """It goes."""

    async def list(self) -> list[ProcessInfo]:
        """Everybody who was seen of late, the oldest first."""


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
"""What others may ask the owner for. Nothing that is not named here can be asked."""

IDEMPOTENT_METHODS = {
    "executions.start_definition": "execution",
    "executions.start": "execution",
    "executions.signal": "key",
    "executions.retry": "key",
    "executions.rerun": "key",
}
"""The argument by which the owner knows a verb that is asked for again; whoever asks makes one up."""


class FileInUseError(StoreUnavailableError):
    """Another process owns the file."""


class NoOwnerError(StoreUnavailableError):
    """Nobody listens: there is no owner, or it is only just starting, or about to leave."""


class OwnerLostError(StoreUnavailableError):
    """The owner went before it answered. What was asked for may have been done."""
