"""Operations on deployed workflows: deploy a version, move an alias, archive."""

from __future__ import annotations

from rune.core.definition.model import Definition, canonical
from rune.core.definition.parser import pinned_nodes
from rune.core.definition.problems import PINNED, Problem
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.clock import Clock
from rune.ports.workflows import Expected, Version, VersionSource, WorkflowStore
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.access import AuditLog, audited, current_principal
from rune.runtime.services.triggers import TriggerService

MAX_NOTE_LENGTH = 2_000


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

    @audited("workflow.deploy", "definition", ("alias", "note"))
    async def deploy(
        self,
        definition: bytes,
        *,
        alias: str | None = None,
        expected: Expected | None = None,
        source: VersionSource | None = None,
        note: str = "",
    ) -> Version:
        """Store a definition as a version of its workflow, with the text `source` that it was read from, unless
        `expected` says otherwise."""
        if len(note) > MAX_NOTE_LENGTH:
            raise RuneError(f"a note has at most {MAX_NOTE_LENGTH:,} characters", code="BAD_NOTE")
        plan = self._plans.compile_untrusted(definition)
        _check_unpinned(plan.definition)
        data, now = canonical(plan.definition), self._clock.now()
        await self._triggers.check(plan)
        version = await self._workflows.deploy(
            data,
            plan.hash,
            plan.definition.id,
            now,
            alias=alias,
            expected=expected,
            source=source,
            principal=current_principal(),
            note=note,
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


def _check_unpinned(definition: Definition) -> None:
    """Raise InvalidDocumentError if a node is pinned: a deployed workflow calls all of its nodes."""
    message, hint = "a deployed workflow has no pins", "give `pins` when it is started"
    problems = [Problem(f"nodes[{at}].pin", PINNED, message, hint) for at in pinned_nodes(definition)]
    if problems:
        raise InvalidDocumentError(tuple(problems))
