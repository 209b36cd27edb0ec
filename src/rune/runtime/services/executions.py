"""Operations on executions. What a method returns is durable."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from rune.core.definition.parser import NO_PINS, Pins
from rune.core.definition.problems import did_you_mean
from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import CHILD_SIGNAL, ExecutionEnded, Fact, PauseChanged, SignalReceived
from rune.core.execution.outcome import Error
from rune.core.execution.rerun import failed_items, kept_results, unfinished
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import ROOT, Path, parse_path, path_text
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.core.start_keys import check_signal_key, stored_key
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.journal import (
    ExecutionEndedError,
    ExecutionRecord,
    IdempotencyConflictError,
)
from rune.ports.processes import RunningSnapshot
from rune.ports.retention import RetentionResult, Rule
from rune.ports.state import Listener
from rune.ports.workflows import LATEST, ChosenVersion, chosen_by, number_of
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.lifecycle.completion_waiters import CompletionWaiters
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.lifecycle.launcher import DEFAULT_OPTIONS, Launcher, StartOptions, new_execution_id
from rune.runtime.lifecycle.signals import SignalDelivery
from rune.runtime.live_follower import LiveFollower
from rune.runtime.payloads import check_start, checked, decode_payload, same_payload
from rune.runtime.plan_cache import PlanCache
from rune.runtime.queries.history import replay
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.principal import current_principal, current_scopes
from rune.runtime.services.rerun_changes import (
    UNCHANGED,
    RerunChanges,
    kept_by_rerun,
    replace_payload,
    with_parameters,
)
from rune.runtime.services.signal_checks import check_accepted, open_takers, open_takers_of_item
from rune.runtime.services.start_limits import Limiter
from rune.runtime.stored_values import store_value

Again = Callable[[Plan, Sequence[Fact]], set[tuple[int, Path]]]


class RequestRefusedError(RuneError):
    """The status of the execution does not permit the request."""

    code = "REFUSED"


class SignalResult(msgspec.Struct, frozen=True):
    """A stored signal, and whether a node was waiting for it."""

    id: str
    resumed: bool


def _started(accepted: ExecutionRecord) -> dict[str, object]:
    return {"execution": accepted.id}


def _stored(key: str | None) -> str | None:
    """Return the stored form of an idempotency key that the current principal sent."""
    return stored_key(key, current_principal(), current_scopes())


def _as_stored(options: StartOptions) -> StartOptions:
    return options if options.key is None else replace(options, key=_stored(options.key))


MAX_PRIORITY = 10
FACT_BATCH = 1_000
MAX_NAMED_SIGNALS = 12  # in an error


def signal_names(plan: Plan) -> tuple[str, ...] | None:
    """Return the names that signals to executions of a plan may have, sorted; None if only a run can tell."""
    found: set[str] = set()
    for node in plan.nodes:
        if node.type.suspends:
            names = node.type.signals(node.id, node.node.parameters)
            if names is None:
                return None
            found.update(names)
    return tuple(sorted(found))


class ExecutionService:
    """Starts, signals, pauses, cancels, retries and deletes executions."""

    def __init__(
        self,
        backend: Backend,
        plans: PlanCache,
        launcher: Launcher,
        signals: SignalDelivery,
        finisher: Finisher,
        limiter: Limiter,
        audit_log: AuditLog,
        live: LiveFollower,
        waiters: CompletionWaiters,
    ) -> None:
        self.audit_log = audit_log
        self._live = live
        self._waiters = waiters
        self._marks = backend.block_marks
        self._journal = backend.journal
        self._state = backend.state
        self._queue = backend.queue
        self._blobs = backend.blob
        self._clock = backend.clock
        self._workflows = backend.workflows
        self._retention = backend.retention
        self._plans = plans
        self._launcher = launcher
        self._signals = signals
        self._finisher = finisher
        self._limiter = limiter

    @audited("execution.start", "definition", made=_started)
    async def start_definition(
        self,
        definition: bytes,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        execution: str | None = None,
        new_id: bool = False,
    ) -> ExecutionRecord:
        """Start a definition that is stored nowhere but with its executions. With `new_id`, `execution` was generated
        for this call, so no earlier start can have used it."""
        options = _as_stored(options)
        plan = await self._plans.compile_given(definition, options.pins)
        record = self._launcher.new_record(plan, input, options, execution=execution)
        record = replace(record, scopes=current_scopes())
        return await self._start(record, plan, new_id=new_id or execution is None, followed=options.followed)

    async def start(
        self,
        workflow: str,
        which: str | None,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        priority: int | None = None,
        execution: str | None = None,
        new_id: bool = False,
        own_key: bool = False,
    ) -> ExecutionRecord:
        """Start a version of a deployed workflow; with pins the execution belongs to no version. An alias with weights
        gives the same version to the same key, or to the same execution where there is none. With `own_key` the key is
        one of Rune itself."""
        by = options.key or execution
        if not own_key:
            options = _as_stored(options)
        if by is None and which is not None and which != LATEST and number_of(which) is None:
            by = execution = new_execution_id()
            new_id = True
        version = await self._workflows.find(workflow, which, by=by)
        plan = await self._plans.plan(version.hash)
        chosen: ChosenVersion | None = chosen_by(which, version)
        if options.pins != NO_PINS:  # another definition, and none that is stored as a version
            plan, chosen = await self._plans.compile_changed(plan.definition, options.pins), None
        record = self._launcher.new_record(
            plan, input, options, execution=execution, priority=priority, chosen=chosen
        )
        if chosen is None:
            record = replace(record, scopes=current_scopes())
        return await self._start(record, plan, new_id=new_id or execution is None, followed=options.followed)

    async def _start(
        self, record: ExecutionRecord, plan: Plan, *, new_id: bool, followed: bool
    ) -> ExecutionRecord:
        """Start an execution on behalf of the caller, or return the same one that was started before."""
        assert type(record.input) is Inline
        await check_start(plan.definition, record.input.data)
        if not 0 <= record.priority <= MAX_PRIORITY:
            raise RequestRefusedError(f"a priority is between 0 and {MAX_PRIORITY}", code="BAD_PRIORITY")
        record = replace(record, principal=current_principal())
        known = None if new_id else await self._journal.accepted(record.id)
        accepted = known or await self._launcher.start(
            record, plan, held=await self._limiter.held(plan), new_id=new_id, followed=followed
        )
        if new_id or accepted.id != record.id:
            return accepted
        same = (accepted.hash, accepted.key) == (record.hash, record.key)
        if not same or not await same_payload(self._blobs, accepted.input, record.input):
            raise IdempotencyConflictError(f"an execution with the id `{record.id}` exists")
        return accepted

    @audited("execution.signal", "execution", ("name", "item"))
    async def signal(
        self,
        execution: str,
        name: str,
        value: bytes = b"null",
        *,
        key: str | None = None,
        item: str | None = None,
    ) -> SignalResult:
        """Send a signal to an execution. It is stored until a node waits for it; a key makes the request repeatable.

        A name that no node of the definition can wait for, or only nodes that have ended, is refused
        (`UNKNOWN_SIGNAL`).
        """
        check_signal_key(key)
        if name.startswith(CHILD_SIGNAL) or not name:
            raise RequestRefusedError(f"`{name}` is not a valid signal name", code="BAD_SIGNAL")
        decoded = await decode_payload(value)
        if decoded.problems:
            raise InvalidDocumentError(decoded.problems)
        try:
            accepted = await self._running(execution)
        except ExecutionEndedError as error:
            # The client may have lost the response to its first request, which ended the execution.
            if key is None or await self._journal.signal(execution, key) is None:
                raise
            raise ExecutionEndedError(
                error.end, f"the signal under key `{key}` was delivered before"
            ) from None
        plan = await self._plans.plan(accepted.hash)
        await self._check_signal_name(execution, plan, name, key)
        path, takers = await self._resolve_item(execution, plan, name, item, key)
        await checked(partial(check_accepted, plan, takers, decoded.value))
        id = key or secrets.token_hex(8)
        # Named by its content: another value under the same key must not take the place of the first.
        name_of = hashlib.blake2b(value, digest_size=8).hexdigest()
        data = await store_value(self._blobs, f"{execution}/signal/{id}/{name_of}", value, LIMITS)
        mine = SignalReceived(self._clock.now(), id, name, path, data)
        stored, resumed = await self._signals.deliver(execution, mine)
        same = stored.name == name and (item is None or stored.path == path)
        if not same or not await same_payload(self._blobs, stored.value, data):
            raise IdempotencyConflictError(f"key `{key}` was used before with another signal")
        return SignalResult(id, resumed)

    async def _check_signal_name(self, execution: str, plan: Plan, name: str, key: str | None) -> None:
        """Raise if no node of the definition can ever wait for this name: the signal would be stored for nothing."""
        known = signal_names(plan)
        if known is None or name in known:
            return
        if key is not None and await self._journal.signal(execution, key) is not None:
            raise IdempotencyConflictError(f"key `{key}` was used before with another signal")
        listed = ", ".join(f"`{each}`" for each in known[:MAX_NAMED_SIGNALS])
        more = ", …" if len(known) > MAX_NAMED_SIGNALS else ""
        takes = f"it takes {listed}{more}" if known else "it takes none"
        raise RequestRefusedError(
            f"no node of `{plan.definition.id}` can wait for a signal `{name}`; {takes}",
            code="UNKNOWN_SIGNAL",
        )

    async def _resolve_item(
        self, execution: str, plan: Plan, name: str, item: str | None, key: str | None
    ) -> tuple[Path | None, list[int]]:
        """Return the lineage that receives the signal, and the nodes that can take it; none if it is stored under this
        key, as it was sent in time. Raise if several items wait and none is named, or if no node can take it."""
        repeated = key is not None and await self._journal.signal(execution, key) is not None
        if item is not None:
            path = parse_path(item, plan.index)
            if path is None:
                raise RequestRefusedError(
                    f"`{item}` is not an item of this workflow; an item is written as `users:5`",
                    code="BAD_ITEM",
                )
            if repeated:
                return path, []
            takers = await open_takers_of_item(self._journal, execution, plan, name, path)
            if len(takers) > 1:
                listeners = await self._listeners(execution, name)
                takers = [each.node for each in listeners if each.path == path][:1] or takers
            return path, takers
        listeners = await self._listeners(execution, name)
        waiting = [each.path for each in listeners]
        if not waiting:
            state = None if repeated else await self._state.recorded(execution)
            return None, [] if state is None else open_takers(plan, state, name)
        # The one that has waited longest is the first, and takes the signal.
        takers = [] if repeated else [listeners[0].node]
        if len(waiting) == 1:
            return waiting[0], takers
        if not any(waiting):
            return ROOT, takers
        shown = ", ".join(path_text(path, plan.ids).lstrip("/") or "/" for path in waiting[:10])
        more = f" and {len(waiting) - 10} more" if len(waiting) > 10 else ""
        raise RequestRefusedError(
            f"{len(waiting)} items wait for the signal `{name}`; name one of {shown}{more}",
            code="AMBIGUOUS_SIGNAL",
        )

    async def _listeners(self, execution: str, name: str) -> list[Listener]:
        """Return the tokens that wait for a signal, the one that has waited longest first."""
        return [each for each in await self._state.waiting_for_signal(execution) if each.signal == name]

    @audited("execution.cancel", "execution")
    async def cancel(self, execution: str, reason: str = "") -> str:
        """Cancel an execution and return its final status, which differs if it ended otherwise first."""
        await self._running(execution)
        error = Error("CANCELLED", reason or "cancelled by request")
        finish = FinishExecution("cancelled", error)
        end = await self._finisher.finish_on_request(execution, finish, self._clock.now())
        await self._marks.forget(execution)
        return end.status

    @audited("execution.pause", "execution")
    async def pause(self, execution: str) -> bool:
        """Pause an execution: no further node starts. Return False if it is already paused."""
        return await self._control(execution, paused=True)

    @audited("execution.resume", "execution")
    async def resume(self, execution: str) -> bool:
        """Resume an execution. Return False if it is not paused."""
        resumed = await self._control(execution, paused=False)
        await self._marks.forget(execution)
        return resumed

    @audited("execution.pause", "execution", ("reason",))
    async def quarantine(self, execution: str, reason: str) -> bool:
        """Pause an execution that keeps the engine from working. Return False if it is already paused."""
        return await self._control(execution, paused=True, reason=reason)

    async def _control(self, execution: str, *, paused: bool, reason: str = "") -> bool:
        accepted = await self._running(execution)
        while True:
            number, is_paused = await self._state.pause_state(execution)
            if is_paused is paused:
                return False
            mine = PauseChanged(self._clock.now(), number + 1, paused, reason)
            (stored,) = await self._journal.record(execution, [mine])
            failpoint.hit("controlled")  # crash here: the pause is recorded; the next rebuild applies it
            applied = await self._state.control(execution, stored)
            await self._queue.send(execution, applied.emitted, accepted.priority)
            if stored is mine:
                return True

    @audited("execution.retry", "execution", ("failed_items", "split", "item", "code"), made=_started)
    async def retry(
        self,
        execution: str,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
        own_key: bool = False,
    ) -> ExecutionRecord:
        """Run again what failed, was cancelled or never ended, or only the items that failed: as a new execution.

        `split`, `item` and `code` limit the items to those of one split, within an item of a split around it, and to
        those with this error code. With `own_key` the key is one of Rune itself.
        """
        if not own_key:
            key = _stored(key)
        limited = (split, item, code) != (None, None, None)
        choose = partial(_failed_items, split=split, item=item, code=code)
        return await self._start_again(execution, choose if failed_items or limited else unfinished, key)

    @audited("execution.rerun", "execution", ("node", "item", "version"), made=_started)
    async def rerun(
        self,
        execution: str,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: bytes | None = None,
        parameters: bytes | None = None,
        version: str | None = None,
        definition: bytes | None = None,
        pins: Pins = NO_PINS,
    ) -> ExecutionRecord:
        """Run a node, in one item or in all, and everything behind it again: as a new execution.

        `input` is another payload of the node, `parameters` an object with other parameters of it, both as JSON;
        `version` another version of the workflow, `definition` one that is not stored. Nodes that these add or change
        run too, and so do those with `pins`.
        """
        key = _stored(key)
        old, plan, facts = await self._ended(execution)
        changes = RerunChanges(
            input=input, parameters=parameters, version=version, definition=definition, pins=pins
        )
        wanted, before = self._wanted(old, key), plan
        if changes != UNCHANGED:
            plan, wanted = await self._changed(plan, wanted, node, changes)
        inside = _item_path(plan, node, item)
        again = partial(kept_by_rerun, before, plan, facts, plan.index[node], inside, wanted.at)
        kept = await replay(len(facts), again)
        if kept is None:
            raise _nothing_to_run(execution)
        if input is not None:
            wanted, kept = await self._with_input(plan, wanted, kept, plan.index[node], inside, input)
        return await self._launcher.start_again(wanted, plan, kept, await self._limiter.held(plan))

    async def _start_again(self, execution: str, choose: Again, key: str | None) -> ExecutionRecord:
        """Run chosen tokens and everything behind them again, with the idempotency keys of their first run."""
        old, plan, facts = await self._ended(execution)
        again = await replay(len(facts), lambda: choose(plan, facts))
        if not again:
            raise _nothing_to_run(execution)
        wanted = replace(self._wanted(old, key), root=old.root or old.id)
        kept = await replay(len(facts), lambda: kept_results(plan, facts, again, wanted.at))
        return await self._launcher.start_again(wanted, plan, kept, await self._limiter.held(plan))

    async def _ended(self, execution: str) -> tuple[ExecutionRecord, Plan, list[Fact]]:
        """Return an execution that has ended, with its plan and facts."""
        old = await self._accepted(execution)
        if await self._journal.end(execution) is None:
            raise RequestRefusedError(f"{execution} has not ended; cancel it first", code="NOT_ENDED")
        plan = await self._plans.plan(old.hash)
        facts: list[Fact] = []
        last = 0
        while stored := await self._journal.facts(execution, last, FACT_BATCH):
            facts += [each.fact for each in stored if not each.late]
            last = stored[-1].number
            await asyncio.sleep(0)
        await self._accepted(execution)  # still there: nothing was removed while its facts were read
        return old, plan, facts

    def _wanted(self, old: ExecutionRecord, key: str | None) -> ExecutionRecord:
        """Return the record of an execution that runs an ended one again."""
        return ExecutionRecord(
            id=new_execution_id(),
            workflow=old.workflow,
            hash=old.hash,
            at=self._clock.now(),
            input=old.input,
            key=key,
            labels=old.labels,
            priority=old.priority,
            fake_time=old.fake_time,
            depth=old.depth,
            # The principal that chose the definition. The audit log names the one that requested this run.
            principal=old.principal,
            scopes=old.scopes,
            retry_of=old.id,
            hook_of=old.hook_of,
            needs=(old.id, *old.needs),
            version=old.version,
            alias=old.alias,
        )

    async def _changed(
        self, plan: Plan, wanted: ExecutionRecord, node: str, changes: RerunChanges
    ) -> tuple[Plan, ExecutionRecord]:
        """Return the plan of a rerun with changes. The principal is the one that chose them: credentials are granted by
        it."""
        wanted = replace(wanted, principal=current_principal())
        if (
            wanted.version is None
        ):  # whoever gives another input chooses what an unstored definition does with it
            wanted = replace(wanted, scopes=current_scopes())
        if changes.version is not None:
            found = await self._workflows.find(wanted.workflow, changes.version, by=wanted.id)
            chosen = chosen_by(changes.version, found)
            plan = await self._plans.plan(found.hash)
            wanted = replace(wanted, version=chosen.number, alias=chosen.alias, scopes=chosen.scopes)
        elif changes.definition is not None:
            plan = await self._plans.compile_given(changes.definition)
        if changes.parameters is not None or changes.pins != NO_PINS:
            definition = plan.definition
            if changes.parameters is not None:
                definition = await with_parameters(definition, node, changes.parameters)
            plan = await self._plans.compile_changed(definition, changes.pins)
        if changes.unstored:
            wanted = replace(wanted, version=None, alias=None, scopes=current_scopes())
        return plan, replace(wanted, workflow=plan.definition.id, hash=plan.hash)

    async def _with_input(
        self, plan: Plan, wanted: ExecutionRecord, kept: list[Fact], node: int, inside: Path, input: bytes
    ) -> tuple[ExecutionRecord, list[Fact]]:
        """Return a rerun in which the node receives another payload."""
        if node in plan.triggers:
            await check_start(plan.definition, input)
            return replace(wanted, input=Inline(input)), kept
        if len(inside) != 2 * plan.nodes[node].depth:
            raise RequestRefusedError(
                f"`{plan.ids[node]}` is inside a split: name the item to edit", code="BAD_ITEM"
            )
        edited = await replace_payload(plan, kept, node, inside, input, wanted.input, wanted.id, self._blobs)
        return replace(wanted, input=edited.input), edited.kept

    @audited("execution.collect")
    async def delete_ended(self, rules: tuple[Rule, ...]) -> RetentionResult:
        """Remove ended executions."""
        return await self._retention.collect(rules, self._clock.now())

    async def running(self, execution: str) -> RunningSnapshot:
        """Return which nodes of an execution run now."""
        return await self._live.running(execution)

    async def wait_for_end(self, execution: str) -> ExecutionEnded:
        """Wait until an execution has ended and return its end. An end that is recorded already is returned at once."""
        await self._accepted(execution)
        future = self._waiters.wait_for(execution)  # before the query, so that no end is missed
        try:
            end: ExecutionEnded | None = await self._journal.end(execution)
            return end if end is not None else await future
        finally:
            self._waiters.forget(execution, future)

    async def _accepted(self, execution: str) -> ExecutionRecord:
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return accepted

    async def _running(self, execution: str) -> ExecutionRecord:
        accepted = await self._accepted(execution)
        end: ExecutionEnded | None = await self._journal.end(execution)
        if end is not None:
            raise ExecutionEndedError(end)
        return accepted


def _item_path(plan: Plan, node: str, item: str | None) -> Path:
    """Return the path of an item in which a node runs again; the root if none is named."""
    _node_index(plan, node)
    return _path_of(plan, item)


def _node_index(plan: Plan, node: str) -> int:
    if node not in plan.index:
        raise RequestRefusedError(
            f"the workflow has no node `{node}`: {did_you_mean(node, plan.index)}", code="UNKNOWN_NODE"
        )
    return plan.index[node]


def _path_of(plan: Plan, item: str | None) -> Path:
    """Return the path of an item; the root if none is named."""
    path = ROOT if item is None else parse_path(item, plan.index)
    if path is None:
        raise RequestRefusedError(
            f"`{item}` is not an item of this workflow; an item is written as `users:5`", code="BAD_ITEM"
        )
    return path


def _nothing_to_run(execution: str) -> RequestRefusedError:
    return RequestRefusedError(f"{execution} has nothing of this kind to run again", code="NOTHING_TO_RUN")


def _failed_items(
    plan: Plan, facts: Sequence[Fact], *, split: str | None, item: str | None, code: str | None
) -> set[tuple[int, Path]]:
    within_split = None if split is None else _node_index(plan, split)
    return failed_items(plan, facts, split=within_split, inside=_path_of(plan, item), code=code)
