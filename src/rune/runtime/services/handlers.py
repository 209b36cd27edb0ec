"""The handlers of executions whose definitions name none, and those that could not be started."""

from __future__ import annotations

from rune.core.definition.model import NO_HANDLER, HookHandler
from rune.ports.journal import FailedHook, HandlerDefaults
from rune.runtime.backend import Backend
from rune.runtime.services.audit_log import AuditLog, audited

MAX_FAILED = 1_000


class HandlerService:
    """Reads and replaces the default handlers, and lists what could not be started."""

    def __init__(self, backend: Backend, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._hooks = backend.hooks
        self._workflows = backend.workflows

    async def defaults(self) -> HandlerDefaults:
        """Return the handlers of deployed workflows that name none."""
        return await self._hooks.defaults()

    @audited("handlers.set", "", ("on_failure", "on_late", "on_missing"))
    async def set_defaults(
        self,
        on_failure: HookHandler | None = None,
        on_late: HookHandler | None = None,
        on_missing: HookHandler | None = None,
    ) -> HandlerDefaults:
        """Replace the handlers of deployed workflows that name none, from the next end on. WorkflowNotFoundError if one
        of them is not deployed."""
        wanted = HandlerDefaults(
            on_failure=_named(on_failure), on_late=_named(on_late), on_missing=_named(on_missing)
        )
        for each in (wanted.on_failure, wanted.on_late, wanted.on_missing):
            if each is not None:
                which = None if each.version is None else str(each.version)
                await self._workflows.find(each.workflow, which)
        await self._hooks.put_defaults(wanted)
        return wanted

    async def failed(self, limit: int = 100) -> list[FailedHook]:
        """Return the handlers that could not be started, newest first."""
        return await self._hooks.failed(min(limit, MAX_FAILED))


def _named(handler: HookHandler | None) -> HookHandler | None:
    return None if handler is None or handler.workflow == NO_HANDLER else handler
