"""Triggers: the webhooks and schedules of deployed workflows that start executions, and their progress."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from rune.core.triggers import Schedule, ScheduleState, WebhookConfig
from rune.errors import RuneError


class TriggerNotFoundError(RuneError):
    """No trigger matches this name, or more than one does."""

    code = "UNKNOWN_TRIGGER"


class PathTakenError(RuneError):
    """Another workflow has a webhook at this path."""

    code = "PATH_TAKEN"


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger node of the deployed version. `revision` counts its changes; 0: not stored yet."""

    id: str
    workflow: str
    node: str
    version: int
    hash: str
    at: int  # when it was created
    alias: str | None = None  # the alias that selected the version
    hook: WebhookConfig | None = None
    schedule: Schedule | None = None
    path: str | None = None  # of a webhook
    credential: str | None = None  # credential with the secret that callers of the webhook prove to know
    made_secret: bool = False  # the credential was created for this trigger
    enabled: bool = True
    anchor: int = 0  # start of an interval schedule
    standing: ScheduleState = ScheduleState()
    due: int | None = None  # when the scheduler has to process the schedule
    trouble: str = ""  # why the last tick started nothing
    revision: int = 0

    @property
    def kind(self) -> Literal["webhook", "schedule"]:
        return "webhook" if self.hook is not None else "schedule"


def trigger_id(workflow: str, node: str) -> str:
    """Return the id of a trigger, which is the same in all versions of its workflow."""
    return "t" + hashlib.blake2b(f"{workflow}\x1f{node}".encode(), digest_size=12).hexdigest()


def path_taken_error(path: str | None, workflow: str | None) -> PathTakenError:
    """Return the error for a path that a webhook of this workflow has; None: it has been removed meanwhile."""
    whose = "another workflow" if workflow is None else f"workflow `{workflow}`"
    return PathTakenError(f"{whose} already has a webhook at `{path}`")


class TriggerStore(Protocol):
    """Triggers by id. A change succeeds only if the caller has the stored revision (optimistic locking)."""

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        """Return the triggers of a workflow, or all of them, ordered by workflow and node."""

    async def find(self, id: str) -> Trigger | None:
        """Return the trigger with this id."""

    async def at_path(self, path: str) -> Trigger | None:
        """Return the webhook at a path."""

    async def put(self, trigger: Trigger) -> Trigger | None:
        """Replace the stored trigger of the same revision (0: insert it) and return it with its new revision.

        None if the stored revision differs. PathTakenError if another trigger has its path.
        """

    async def remove(self, trigger: Trigger) -> bool:
        """Delete a trigger; False if the stored revision differs."""

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        """Return schedules that are due, the longest due first."""

    async def next_due(self) -> int | None:
        """Return when the next schedule is due (epoch ms); None if there is none."""

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        """Record the delivery id under which a signature (`mark`) was received, until the signature expires.

        Write-once: return the delivery id of the first call, so that a replay under another id is detected.
        """

    async def forget_deliveries(self, now: int) -> int:
        """Delete the records of expired signatures and return how many there were."""
