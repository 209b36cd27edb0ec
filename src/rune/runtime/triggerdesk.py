"""The part of the desk that is about triggers."""

from __future__ import annotations

from rune.ports.trigger import Trigger
from rune.runtime.logbook import Logbook, written_down
from rune.runtime.triggers import Rotated, TriggerBook


@written_down
class TriggerDesk:
    """What people ask of triggers. A trigger is named by its id, by `workflow/node`, or by a workflow that has one."""

    logbook: Logbook
    _triggers: TriggerBook

    async def triggers(self, workflow: str | None = None) -> tuple[Trigger, ...]:
        """All of them, or those of a workflow."""
        return tuple(await self._triggers.list(workflow))

    async def find_trigger(self, reference: str) -> Trigger:
        """One of them."""
        return await self._triggers.find(reference)

    async def enable_trigger(self, reference: str, enabled: bool) -> Trigger:
        """Switch one on or off."""
        return await self._triggers.enable(reference, enabled)

    async def rotate_trigger(self, reference: str, secret: bool = False) -> Rotated:
        """Give a hook a new path, or a new secret, which is shown this once."""
        return await self._triggers.rotate(reference, secret)
