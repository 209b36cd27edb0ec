"""Child executions: started by a node of their parent, and cancelled when the parent no longer waits for them."""

from __future__ import annotations

import logging
from typing import Any

from msgspec.structs import replace

from rune.codec.facts import encode_value
from rune.core.execution.token import Token, child_id, token_name
from rune.core.limits import LIMITS
from rune.core.permissions import covers, may_call
from rune.errors import InvalidDocumentError, LimitExceededError, NodeFailure
from rune.nodes.base import check_json
from rune.nodes.blobs import names_blobs
from rune.ports.journal import (
    ExecutionRecord,
    Journal,
    Parent,
    StoreUnavailableError,
)
from rune.ports.state import Claim
from rune.ports.workflows import (
    ChosenVersion,
    WorkflowNotFoundError,
    WorkflowStore,
    child_forbidden,
    chosen_by,
)
from rune.runtime import failpoint
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache
from rune.runtime.lifecycle.finisher import ABANDONED, Finisher
from rune.runtime.lifecycle.launcher import Launcher, StartOptions
from rune.runtime.payloads import check_start
from rune.runtime.plan_cache import PlanCache
from rune.telemetry.counters import Instrumentation

log = logging.getLogger("rune.children")

BATCH = 500


class Children:
    """Starts child executions, cancels those whose parent no longer waits, and reports ends that a crash left
    unreported."""

    def __init__(
        self,
        journal: Journal,
        workflows: WorkflowStore,
        plans: PlanCache,
        data_cache: ExecutionDataCache,
        launcher: Launcher,
        finisher: Finisher,
        instrumentation: Instrumentation,
    ) -> None:
        self._journal = journal
        self._workflows = workflows
        self._plans = plans
        self._data_cache = data_cache
        self._launcher = launcher
        self._finisher = finisher
        self._instrumentation = instrumentation

    async def launch(
        self,
        data: ExecutionData,
        token: Token,
        claim: Claim,
        workflow: str,
        which: str | None,
        input: Any,
        waits: bool,
    ) -> str:
        """Start the child of an attempt, or return the child that an earlier run of the attempt started."""
        parent = data.accepted
        if parent.depth >= LIMITS.child_depth:
            raise LimitExceededError("nested executions", LIMITS.child_depth)
        name = token_name(token.node, token.path, data.plan.ids)
        child = child_id(parent.id, name, token.attempt)
        if await self._journal.accepted(child) is not None:
            return child
        hash, chosen, scopes = await self._definition(parent, name, workflow, which)
        plan = await self._plans.plan(hash)
        check_json(input, what="start payload")
        payload = encode_value(input)
        try:
            await check_start(plan.definition, payload)
        except InvalidDocumentError as invalid:
            message = "; ".join(f"{each.path}: {each.message}" for each in invalid.problems[:5])
            raise NodeFailure(
                f"`{workflow}` rejects its start payload: {message}", code="INVALID_INPUT"
            ) from None
        options = StartOptions(labels=parent.labels, fake_time=parent.fake_time)
        record = replace(
            self._launcher.new_record(plan, payload, options, execution=child, chosen=chosen),
            parent=Parent(parent.id, token.node, token.path, token.attempt) if waits else None,
            depth=parent.depth + 1,
            needs=(parent.id, *parent.needs) if names_blobs(payload) else (),
            at=claim.now,
            trace=self._instrumentation.outgoing_trace(parent, data.plan, token),
            principal=parent.principal,
            scopes=scopes,
            hook_of=parent.hook_of,
        )
        failpoint.hit("launching")
        await self._launcher.start(record, plan)
        # crash here: the child runs; the attempt runs again and finds it
        failpoint.hit("launched")
        return child

    async def _definition(
        self, parent: ExecutionRecord, name: str, workflow: str, which: str | None
    ) -> tuple[str, ChosenVersion | None, tuple[str, ...]]:
        """Return the hash of the definition to run, its version and its scopes: a retry uses those of the first
        attempt, whatever was deployed since. ChildForbiddenError if the parent may not start it."""
        first = await self._journal.accepted(child_id(parent.id, name, 1))
        if first is not None:
            chosen = (
                None if first.version is None else ChosenVersion(first.version, first.alias, first.scopes)
            )
            return first.hash, chosen, first.scopes
        try:
            version = await self._workflows.find(workflow, which)
        except WorkflowNotFoundError:
            if covers(parent.scopes, workflow):
                raise
            raise child_forbidden(parent.workflow, workflow) from None
        if not covers(parent.scopes, workflow):
            listed = (await self._plans.definition(version.hash)).settings.callable_by
            if not may_call(parent.scopes, parent.workflow, workflow, listed):
                raise child_forbidden(parent.workflow, workflow)
        return version.hash, chosen_by(which, version), version.scopes

    async def abandon(self, data: ExecutionData, token: Token, now: int) -> None:
        """Cancel the child that a token waits for, before the token itself ends."""
        name = token_name(token.node, token.path, data.plan.ids)
        await self._finisher.cancel_child(child_id(data.accepted.id, name, token.attempt), now)

    async def recover(self, now: int) -> None:
        """Report the ends, and cancel the orphans, that a crash or a failed write left behind. A child on which that
        fails does not hold up the others; it is tried again with the next call."""
        failed: set[str] = set()
        while rows := set(await self._journal.unreported_children(BATCH)) - failed:
            for child in rows:
                try:
                    await self._recover(child, now)
                except StoreUnavailableError:
                    raise
                except Exception:
                    log.exception("the parent of %s is not notified of its end yet", child)
                    failed.add(child)

    async def _recover(self, child: str, now: int) -> None:
        end = await self._journal.end(child)
        if end is None:
            await self._finisher.finish(child, ABANDONED, now, counted=False)
        else:
            await self._finisher.notify_relatives(await self._data_cache.get(child), end)
            self._data_cache.forget(child)
