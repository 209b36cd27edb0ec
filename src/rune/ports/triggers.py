"""Triggers: what starts executions by itself, a hook or a schedule of a published version, and how far it has come."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from rune.core.triggers import Schedule, ScheduleState, WebhookConfig
from rune.errors import RuneError


class TriggerNotFoundError(RuneError):
    """No trigger is called like this, or several are."""

    code = "UNKNOWN_TRIGGER"


class PathTakenError(RuneError):
    """Another workflow has a hook at this path."""

    code = "PATH_TAKEN"


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One trigger node of the version that is followed. `revision` counts its changes; 0: not stored."""

    id: str
    workflow: str
    node: str
    version: int
    hash: str
    at: int  # when it was made
    hook: WebhookConfig | None = None
    schedule: Schedule | None = None
    path: str | None = None  # of a hook
    credential: str | None = None  # whose secret a caller has to know
    made_secret: bool = False  # whether it is one that was made for this trigger
    enabled: bool = True
    anchor: int = 0  # of an interval
    standing: ScheduleState = ScheduleState()
    due: int | None = None  # when a schedule has to be looked at
    trouble: str = ""  # why the last tick started nothing
    revision: int = 0

    @property
    def kind(self) -> Literal["webhook", "schedule"]:
        return "webhook" if self.hook is not None else "schedule"


def trigger_id(workflow: str, node: str) -> str:
    """The id of a trigger, whatever version it is of."""
    return "t" + hashlib.blake2b(f"{workflow}\x1f{node}".encode(), digest_size=12).hexdigest()


class TriggerStore(Protocol):
    """Triggers by id. Every change is made to what the changer has seen, or not at all."""

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        """All of them, by workflow and node."""

    async def find(self, id: str) -> Trigger | None:
        """One of them."""

    async def at_path(self, path: str) -> Trigger | None:
        """The hook at a path."""

    async def put(self, trigger: Trigger) -> Trigger | None:
        """Store one in the place of its own revision (0: of nothing), and answer it with its new one. None if somebody
        else was first. PathTaken if another has its path."""

    async def remove(self, trigger: Trigger) -> bool:
        """Forget one; False if it is no longer what the remover has seen."""

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        """Schedules that have to be looked at, the longest due first."""

    async def next_due(self) -> int | None:
        """When the first of them is."""

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        """Note under which delivery something signed has come, until it is no longer good. Write-once: the answer is
        the delivery under which it came first."""

    async def forget_deliveries(self, now: int) -> int:
        """Drop notes of what is no longer good; how many."""
