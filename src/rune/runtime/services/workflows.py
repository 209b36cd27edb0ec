"""Operations on stored workflows: deploy a version, move an alias, archive."""

from __future__ import annotations

from rune.core.definition.model import canonical
from rune.ports.clock import Clock
from rune.ports.workflows import Expected, Version, WorkflowStore
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.triggers import TriggerService


class WorkflowService:
    """Deploys and archives workflows. Their triggers follow each change."""

    def __init__(
        self,
        workflows: WorkflowStore,
        plans: PlanCache,
        triggers: TriggerService,
        clock: Clock,
        audit_log: AuditLog,
    ) -> None:
        self.audit_log = audit_log
        self._workflows = workflows
        self._plans = plans
        self._triggers = triggers
        self._clock = clock

    @audited("workflow.deploy", "definition", ("alias",))
    async def deploy(
        self, definition: bytes, *, alias: str | None = None, expected: Expected | None = None
    ) -> Version:
        """Store a definition as a version of its workflow, unless `expected` says otherwise."""
        plan = self._plans.compile_untrusted(definition)
        data, now = canonical(plan.definition), self._clock.now()
        await self._triggers.check(plan)
        version = await self._workflows.deploy(
            data, plan.hash, plan.definition.id, now, alias=alias, expected=expected
        )
        await self._triggers.publish(
            version.workflow
        )  # crash here: the scheduler publishes the triggers later
        return version

    @audited("alias.point", "workflow", ("alias", "version", "weights"))
    async def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        *,
        weights: dict[int, float] | None = None,
        expected: Expected | None = None,
    ) -> Version:
        """Point an alias at a version. Weights give a percentage of the starts to other versions."""
        now = self._clock.now()
        await self._triggers.check_version(workflow, version)
        pointed = await self._workflows.set_alias(
            workflow, alias, version, now, weights=weights, expected=expected
        )
        await self._triggers.publish(workflow)
        return pointed

    @audited("workflow.hide", "workflow")
    async def archive(self, workflow: str) -> bool:
        """Archive a workflow; False if there is none."""
        archived = await self._workflows.archive(workflow, self._clock.now())
        await self._triggers.publish(workflow)
        return archived
