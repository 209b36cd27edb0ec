"""Operations on deployed workflows: deploy a version, move an alias, archive; and on their triggers.

A workflow has the triggers and the expectation of the version that its alias `stable` points at or, without that alias,
of the latest version. Deploying a version or moving the alias publishes them; a scheduler repeats what a crash left
unpublished.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.definition.model import NO_HANDLER, Definition, canonical
from rune.core.definition.parser import pinned_nodes
from rune.core.definition.problems import PINNED, Problem
from rune.core.permissions import covers, may_call
from rune.core.plan.model import Plan
from rune.core.schedules import Schedule, ScheduleState, next_start
from rune.core.webhooks import WebhookConfig
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.control.schedule import next_tick
from rune.ports.clock import Clock
from rune.ports.credentials import Bearer, CredentialNameTakenError, CredentialNotFoundError, NewCredential
from rune.ports.journal import StoreUnavailableError
from rune.ports.workflows import (
    LATEST,
    Expectation,
    Expected,
    PathTakenError,
    Trigger,
    TriggerNotFoundError,
    Version,
    VersionSource,
    WorkflowNotFoundError,
    WorkflowStore,
    child_forbidden,
    trigger_id,
)
from rune.runtime.backend import Backend
from rune.runtime.plan_cache import MissingNodeTypeError, PlanCache
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.credentials import new_id
from rune.runtime.services.principal import current_principal, current_scopes

log = logging.getLogger("rune.triggers")

STABLE_ALIAS = "stable"
"""The alias that triggers follow where a workflow has it."""

MAX_TRIES = 20


class SecretNotRotatedError(RuneError):
    """The path or secret is defined elsewhere and cannot be rotated here."""

    code = "NOT_ROTATED"


class RotatedSecret(msgspec.Struct, frozen=True):
    """A trigger with a new path or a new secret. The secret is shown this once."""

    trigger: Trigger
    secret: str | None = None

    def __repr__(self) -> str:
        return f"Rotated({self.trigger.id})"


class TriggerService:
    """Publishes the triggers of deployed versions, and enables, disables and rotates them."""

    def __init__(self, backend: Backend, plans: PlanCache, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._store = backend.triggers
        self._workflows = backend.workflows
        self._credentials = backend.credentials
        self._clock = backend.clock
        self._plans = plans
        self._expectations = backend.expectations
        self._counts: dict[tuple[str, int], int] = {}
        """Number of triggers and expectations of each version that this process has published."""

    async def check(self, plan: Plan) -> None:
        """Raise PathTakenError if a webhook of another workflow has the path of one of this definition."""
        for _, _, spec in _specs(plan):
            path = spec.path if isinstance(spec, WebhookConfig) else None
            other = None if path is None else await self._store.at_path(path)
            if other is not None and other.workflow != plan.definition.id:
                raise PathTakenError(f"a webhook of `{other.workflow}` has the path `{path}`")

    async def check_version(self, workflow: str, number: int | None) -> None:
        """Check a stored version. An unknown version is refused by the store."""
        if number is None:
            return
        with suppress(WorkflowNotFoundError):
            version = await self._workflows.find(workflow, str(number))
            await self.check(await self._plans.plan(version.hash))

    async def publish(self, workflow: str) -> None:
        """Replace the triggers of a workflow by those of the version it follows."""
        try:
            for _ in range(MAX_TRIES):
                if await self._try_publish(workflow, await self._alias_target(workflow)):
                    return
        except MissingNodeTypeError as lacking:  # another scheduler has the node type
            log.warning("triggers of %s are published by another scheduler: %s", workflow, lacking.message)
            return
        log.warning("the triggers of %s change too often to be published", workflow)

    async def reconcile(self) -> None:
        """Publish triggers that a crashed deploy, or a version of Rune without triggers, left unpublished."""
        stored: dict[str, list[int]] = {}
        for trigger in await self._store.list():
            stored.setdefault(trigger.workflow, []).append(trigger.version)
        for expectation in await self._expectations.list():
            stored.setdefault(expectation.workflow, []).append(expectation.version)
        wanted = {
            each.workflow: each.aliases.get(STABLE_ALIAS, each.latest)
            for each in await self._workflows.list()
        }
        for workflow in stored.keys() | wanted.keys():
            version = wanted.get(workflow, 0)
            count = self._counts.get((workflow, version))
            if count is not None and stored.get(workflow, []) == [version] * count:
                continue
            try:
                await self.publish(workflow)
            except StoreUnavailableError:
                raise
            except Exception as error:  # an error in one workflow must not stop the others
                log.warning("the triggers of %s are not published: %s", workflow, error)

    async def _alias_target(self, workflow: str) -> Version | None:
        for alias in (STABLE_ALIAS, None):
            with suppress(WorkflowNotFoundError):
                return await self._workflows.find(workflow, alias)
        return None

    async def _try_publish(self, workflow: str, version: Version | None) -> bool:
        """Return False if another process changed a trigger concurrently."""
        # Before the triggers, which a process may not know all types of.
        done, expected = await self._publish_expectation(workflow, version)
        known = {each.id: each for each in await self._store.list(workflow)}
        wanted = [] if version is None else list(_specs(await self._plans.plan(version.hash)))
        for node, credential, spec in wanted:
            assert version is not None
            old = known.pop(trigger_id(workflow, node), None)
            new = _renew(old, version, node, credential, spec, self._clock.now())
            done = (new == old or await self._store.put(new) is not None) and done
        for each in known.values():
            done = await self._remove(each) and done
        if version is not None:
            self._counts[workflow, version.number] = len(wanted) + expected
        return done

    async def _publish_expectation(self, workflow: str, version: Version | None) -> tuple[bool, int]:
        """Return False if another process changed the expectation concurrently, and how many there are now."""
        old = await self._expectations.find(workflow)
        new = None
        if version is not None:
            every = (await self._plans.definition(version.hash)).settings.expect_every
            new = None if every is None else _expect(old, version, round(every * 1000), self._clock.now())
        if new is not None:
            return new == old or await self._expectations.put(new) is not None, 1
        return old is None or await self._expectations.remove(old), 0

    async def _remove(self, trigger: Trigger) -> bool:
        if not await self._store.remove(trigger):
            return False
        if trigger.made_secret and trigger.credential is not None:
            with suppress(CredentialNotFoundError):
                await self._credentials.remove(trigger.credential)
        return True

    async def list(self, workflow: str | None = None) -> tuple[Trigger, ...]:
        """Return all triggers, or those of one workflow."""
        return tuple(await self._store.list(workflow))

    async def find(self, reference: str) -> Trigger:
        """Return the trigger with this id, of `workflow/node`, or the only one of a workflow."""
        found = await self._store.find(reference)
        if found is not None:
            return found
        workflow, _, node = reference.partition("/")
        several = [each for each in await self._store.list(workflow) if not node or each.node == node]
        if len(several) == 1:
            return several[0]
        if not several:
            raise TriggerNotFoundError(f"there is no trigger `{reference[:200]}`")
        named = ", ".join(f"{each.workflow}/{each.node}" for each in several[:10])
        raise TriggerNotFoundError(f"`{reference}` has {len(several)} triggers; name one of {named}")

    @audited("trigger.enable", "reference", unless=("enabled", "trigger.disable"))
    async def enable(self, reference: str, enabled: bool) -> Trigger:
        """Enable or disable a trigger. Times that were missed while it was disabled are not started later."""

        def change(trigger: Trigger) -> Trigger:
            if trigger.enabled == enabled:
                return trigger
            now = self._clock.now()
            standing = replace(trigger.standing, waiting=())
            if trigger.schedule is not None and enabled:
                standing = replace(standing, next=next_tick(trigger.schedule, trigger.anchor)(now))
            # A start that is already stored takes place even if the trigger is disabled.
            due = next_start(standing, now) if enabled or standing.starting is not None else None
            return replace(trigger, enabled=enabled, standing=standing, due=due)

        return await self._change(reference, change)

    @audited("trigger.rotate", "reference", ("secret",))
    async def rotate(self, reference: str, secret: bool = False) -> RotatedSecret:
        """Give a webhook a new path or a new secret; the old one stops working."""
        trigger = await self.find(reference)
        if trigger.hook is None:
            raise SecretNotRotatedError("a schedule has neither a path nor a secret")
        if secret:
            return await self._new_secret(trigger, trigger.hook)
        if trigger.hook.path is not None:
            raise SecretNotRotatedError(
                f"the path `{trigger.path}` is written in the definition; change it there"
            )
        return RotatedSecret(await self._change(trigger.id, lambda each: replace(each, path=new_path())))

    async def _new_secret(self, trigger: Trigger, hook: WebhookConfig) -> RotatedSecret:
        if hook.auth == "none":
            raise SecretNotRotatedError("the webhook has no secret; set `auth` on its node")
        if trigger.credential is not None and not trigger.made_secret:
            raise SecretNotRotatedError(
                f"the secret is that of the credential `{trigger.credential}`; rotate that"
            )
        made, name = secrets.token_urlsafe(32), f"trigger-{trigger.id}"
        now = self._clock.now()
        try:
            await self._credentials.put(
                # Only the trigger may use it, to verify requests.
                NewCredential(
                    id=new_id(),
                    name=name,
                    fields=Bearer(token=made),
                    grants=frozenset({f"trigger:{trigger.id}"}),
                    at=now,
                )
            )
        except CredentialNameTakenError:
            await self._credentials.rotate(name, {"token": made}, None, now)
        stored = await self._change(trigger.id, lambda each: replace(each, credential=name, made_secret=True))
        return RotatedSecret(stored, made)

    async def _change(self, reference: str, change: Callable[[Trigger], Trigger]) -> Trigger:
        for _ in range(MAX_TRIES):
            old = await self.find(reference)
            new = change(old)
            if new == old:
                return old
            stored = await self._store.put(new)
            if stored is not None:
                return stored
        raise SecretNotRotatedError(f"`{reference}` changes too often; try again")


def new_path() -> str:
    """Return a random path."""
    return secrets.token_urlsafe(24)


def _specs(plan: Plan) -> Iterator[tuple[str, str | None, WebhookConfig | Schedule]]:
    """Return the triggers in a plan: their node, its credential, and what starts them."""
    for index in sorted(plan.triggers):
        each = plan.nodes[index]
        spec = each.type.starts(each.node.parameters)
        if spec is not None:
            named = each.node.credentials or {}
            yield each.id, named.get("id") or named.get("name"), spec


def _renew(
    old: Trigger | None,
    version: Version,
    node: str,
    credential: str | None,
    spec: WebhookConfig | Schedule,
    now: int,
) -> Trigger:
    """Return the trigger for a version; path, secret and the state of the schedule are kept."""
    if old is None or isinstance(spec, WebhookConfig) != (old.hook is not None):
        old = Trigger(
            id=trigger_id(version.workflow, node),
            workflow=version.workflow,
            node=node,
            version=version.number,
            hash=version.hash,
            at=now if old is None else old.at,
            revision=0 if old is None else old.revision,
        )
    made = old.made_secret and credential is None
    new = replace(
        old,
        scopes=version.scopes,
        version=version.number,
        hash=version.hash,
        alias=STABLE_ALIAS if STABLE_ALIAS in version.aliases else LATEST,
        credential=old.credential if made else credential,
        made_secret=made,
    )
    return _with_webhook(new, spec) if isinstance(spec, WebhookConfig) else _with_schedule(new, spec, now)


def _expect(old: Expectation | None, version: Version, every: int, now: int) -> Expectation:
    """Return the expectation for a version. Its period goes on; that of a workflow that had none begins now."""
    since = now if old is None else old.since
    return Expectation(
        workflow=version.workflow,
        version=version.number,
        hash=version.hash,
        scopes=version.scopes,
        every=every,
        since=since,
        due=since + every,
        revision=0 if old is None else old.revision,
    )


def _with_webhook(trigger: Trigger, hook: WebhookConfig) -> Trigger:
    unnamed = trigger.hook is not None and trigger.hook.path is None
    path = hook.path or (trigger.path if unnamed else new_path())
    return replace(trigger, hook=hook, path=path)


def _with_schedule(trigger: Trigger, schedule: Schedule, now: int) -> Trigger:
    if schedule.same_times(trigger.schedule):
        return replace(trigger, schedule=schedule)
    first = next_tick(schedule, now)(now)
    standing = ScheduleState(first, (), trigger.standing.starting, trigger.standing.last)
    due = next_start(standing, now) if trigger.enabled else None
    return replace(trigger, schedule=schedule, anchor=now, standing=standing, due=due, trouble="")


MAX_NOTE_LENGTH = 2_000


def _deployed(version: Version) -> dict[str, object]:
    return {"version": version.number, "hash": version.hash, "change": version.change}


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

    @audited("workflow.deploy", "definition", ("alias", "note"), made=_deployed)
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
        plan = await self._plans.compile_given(definition)
        _check_unpinned(plan.definition)
        data, now = canonical(plan.definition), self._clock.now()
        await self._triggers.check(plan)
        await self._check_children(plan)
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
            scopes=current_scopes(),
        )
        await self._triggers.publish(
            version.workflow
        )  # crash here: the scheduler publishes the triggers later
        return version

    async def _check_children(self, plan: Plan) -> None:
        """Raise ChildForbiddenError if a `workflow` node or a handler names a workflow that this version may not start.
        A name that an expression computes is checked when the node runs."""
        caller, scopes = plan.definition.id, current_scopes()
        settings = plan.definition.settings
        started: list[tuple[Any, Any]] = [
            (each.workflow, each.version)
            for each in (settings.on_failure, settings.on_late, settings.on_missing)
            if each is not None and each.workflow != NO_HANDLER
        ]
        started += [
            (node.parameters.fixed.get("workflow"), node.parameters.fixed.get("version"))
            for node in (plan.nodes if plan.launches else ())
            if node.type.launches
        ]
        for child, which in started if scopes else ():
            if isinstance(child, str) and not covers(scopes, child):
                with suppress(WorkflowNotFoundError):
                    version = await self._workflows.find(child, None if which is None else str(which))
                    listed = (await self._plans.definition(version.hash)).settings.callable_by
                    if may_call(scopes, caller, child, listed):
                        continue
                raise child_forbidden(caller, child)

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
