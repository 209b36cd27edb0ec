"""What clients ask of triggers."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

import msgspec

from rune.client.asking import Asking, AsyncAsking
from rune.client.calls import API, Call
from rune.client.models import Model


class Webhook(Model, frozen=True, kw_only=True):
    """A hook. `path` is told to those who may start executions."""

    path: str | None = None
    method: str = "POST"
    auth: str = "none"
    secret: str = "none"
    window: int = 300
    respond: str = "accepted"


class Schedule(Model, frozen=True, kw_only=True):
    """A schedule, and how far it is."""

    cron: str | None = None
    timezone: str = "UTC"
    every_ms: int | None = None
    catch_up: str = "none"
    overlap: str = "skip"
    next_at: str | None = None
    waiting: int = 0
    last_execution_id: str | None = None
    trouble: str = ""


class Trigger(Model, frozen=True, kw_only=True):
    """What starts executions by itself. `new_secret` is there once: after it was made."""

    id: str
    workflow_id: str
    node_id: str
    kind: str
    version: int
    enabled: bool
    created_at: str
    webhook: Webhook | None = None
    schedule: Schedule | None = None
    new_secret: str | None = None

    def __repr__(self) -> str:
        return f"Trigger({self.id})"


class TriggerList(Model, frozen=True, kw_only=True):
    """All of them."""

    triggers: list[Trigger]


def listed(workflow: str | None) -> Call[TriggerList]:
    params = {} if workflow is None else {"workflow": workflow}
    return Call(method="GET", path=f"{API}/triggers", answer=TriggerList, params=params, repeatable=True)


def acted(
    id: str, verb: Literal["enable", "disable", "rotate"], body: dict[str, Any] | None
) -> Call[Trigger]:
    return Call(
        method="POST",
        path=f"{API}/triggers/{quote(id, safe='')}/{verb}",
        answer=Trigger,
        body=None if body is None else msgspec.json.encode(body),
        repeatable=verb != "rotate",
    )


class TriggerCalls:
    """Triggers, for the client that waits for one thing at a time."""

    def triggers(self: Asking, workflow: str | None = None) -> list[Trigger]:
        """All of them, or those of a workflow."""
        found: TriggerList = self._ask(listed(workflow))
        return found.triggers

    def enable_trigger(self: Asking, id: str, *, enabled: bool = True) -> Trigger:
        """Switch one on or off."""
        found: Trigger = self._ask(acted(id, "enable" if enabled else "disable", None))
        return found

    def rotate_trigger(self: Asking, id: str, *, secret: bool = False) -> Trigger:
        """Give a hook a new path, or a new secret, which is told this once."""
        found: Trigger = self._ask(acted(id, "rotate", {"secret": secret}))
        return found


class AsyncTriggerCalls:
    """Triggers, for the client that waits for many things at once."""

    async def triggers(self: AsyncAsking, workflow: str | None = None) -> list[Trigger]:
        """All of them, or those of a workflow."""
        found: TriggerList = await self._ask(listed(workflow))
        return found.triggers

    async def enable_trigger(self: AsyncAsking, id: str, *, enabled: bool = True) -> Trigger:
        """Switch one on or off."""
        found: Trigger = await self._ask(acted(id, "enable" if enabled else "disable", None))
        return found

    async def rotate_trigger(self: AsyncAsking, id: str, *, secret: bool = False) -> Trigger:
        """Give a hook a new path, or a new secret, which is told this once."""
        found: Trigger = await self._ask(acted(id, "rotate", {"secret": secret}))
        return found
