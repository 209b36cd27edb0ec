"""The executor: takes one token from delivery to acknowledgement, in one direction.

    receive → load → claim → run → record (journal) → apply (state) → send (queue) → acknowledge

Start reading at `Executor.handle`. Each `# crash here` comment names what a crash at that point leaves behind and
which component recovers it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from rune.core.execution.control import outcome_of
from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    NodeResult,
    NodeSuspended,
    RaceWinner,
    TokenFact,
)
from rune.core.execution.inline_run import InlineRun, only_successor
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output
from rune.core.execution.step import decision_for_fact, error_origin, fact_for_outcome, step, step_unrun
from rune.core.execution.stored_value import Same
from rune.core.execution.token import Token, TokenPurpose, token_name
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.nodes.base import Resources
from rune.nodes.registry import Registry
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError, TokenEndedError
from rune.ports.queue import Delivery
from rune.ports.state import Applied, Claim, Fence, KeptToken
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.components import EngineComponents
from rune.runtime.execution_data import ExecutionClock, ExecutionData, ExecutionNotFoundError
from rune.runtime.lifecycle.finisher import is_hooked
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.value_reader import ValueReader
from rune.runtime.worker.evaluator import Evaluator
from rune.runtime.worker.isolation import SUSPECT_CRASHES, Isolation
from rune.runtime.worker.item_chunks import ItemChunks
from rune.runtime.worker.leases import LeaseLapsedError
from rune.runtime.worker.node_runner import CredentialPolicy, NodeRunner
from rune.telemetry.counters import now_ns
from rune.telemetry.logs import enter_context

log = logging.getLogger("rune.executor")

MAX_CLAIMS = 5
STORE_RETRY_DELAY_S = 0.5
UNKNOWN_OUTCOME = Error(
    "UNKNOWN_OUTCOME",
    "an earlier run of this node was interrupted, and the node must not run twice",
    engine=True,
)


MayGoOn = Callable[[], bool]
"""Returns whether the worker may run the successor of a token before it receives another delivery."""


def stop_here() -> bool:
    """The default: every successor is sent."""
    return False


class UnservableTokenError(RuneError):
    """No worker can run the token: its execution or node is unknown, or it crashed too many workers."""


class Executor:
    """Handles deliveries. Keeps no state between two of them."""

    def __init__(
        self,
        owner: str,
        backend: Backend,
        components: EngineComponents,
        registry: Registry,
        resources: Resources,
        *,
        in_place: bool = True,
        sticky: bool = False,
        chunk: int = 1,
        evaluator: Evaluator | None = None,
    ) -> None:
        self._owner = owner
        self._journal = backend.journal
        self._state = backend.state
        self._queue = backend.queue
        self._leases = components.leases
        self._running = components.running
        self._logs = components.attempt_logs
        self._data_cache = components.data_cache
        self._finisher = components.finisher
        self._children = components.children
        self._instrumentation = components.instrumentation
        self._counters = components.instrumentation.counters
        policy = CredentialPolicy(backend.grants, backend.workflows)
        self._runner = NodeRunner(
            registry,
            components.leases,
            components.children,
            policy,
            components.instrumentation,
            resources,
            evaluator or Evaluator(),
            components.running,
            components.attempt_logs,
        )
        self._isolation = Isolation()
        self._in_place = in_place
        self._sticky = sticky and in_place
        self.chunks = ItemChunks(owner, backend, components, self._runner, chunk if in_place else 1)

    async def handle(
        self, delivery: Delivery, claim: Claim | None = None, may_go_on: MayGoOn = stop_here
    ) -> KeptToken | None:
        """Process one delivery; `claim` is that of a token which was claimed when it was emitted. Return the successor
        that was claimed for this worker in the same way, if `may_go_on` permitted it."""
        failpoint.hit("received")
        data = await self._load_execution(delivery)
        claim = claim or await self._claim(data, delivery.token)
        if claim.verdict == "void" and delivery.accepted is not None:
            await self._check_known(delivery.execution)
        clock = self._data_cache.clock_since(claim.now)
        kept_token: KeptToken | None = None
        if claim.verdict in ("run", "cancelled"):
            try:
                kept_token = await self._run_claimed(data, claim, clock, may_go_on)
            except ExecutionEndedError as ended:
                await self._state.end(data.accepted.id, ended.end)
            except TokenEndedError:
                await self._apply_stored_outcome(data, claim)
            except LeaseLapsedError:
                # The sweeper sends the token again when its lease is over.
                log.warning("the answer to a claim or its renewal is late: the node is not run here")
            finally:
                self._release_lease(data, claim)
        # crash here: the queue delivers the token again, and the claim finds it done
        await self._queue.ack(delivery)
        return kept_token

    async def requeue(self, delivery: Delivery, delays: Sequence[int] = ()) -> int:
        """End the lease of a delivery that was not processed; with `delays`, count an engine error. See the port."""
        return await self._state.requeue(delivery.execution, delivery.token, self._owner, delays)

    async def _run_claimed(
        self, data: ExecutionData, claim: Claim, clock: ExecutionClock, may_go_on: MayGoOn
    ) -> KeptToken | None:
        """Run a token that was claimed. One with a lease is counted first, and waits while another one runs alone."""
        if claim.fence is None:
            return await self._run_and_commit(data, claim, clock, may_go_on)
        execution, token, isolation = data.accepted.id, claim.token, self._isolation
        self._leases.hold(execution, token, claim.fence, claim.asked)
        self._running.begin(execution, token, claim.now)
        again = claim.again or claim.recovered
        earlier = await self._journal.claims_of(execution, token.node, token.path) if again else 0
        # Earlier attempts and the claim before a wait were no crashes.
        others = claim.given_back + token.attempt - 1 + token.resumed
        if earlier - others >= SUSPECT_CRASHES:
            await isolation.turn.acquire()
            try:
                await self._count_claim(data, claim, claim.fence)
            except BaseException:
                isolation.turn.release()
                raise
            async with isolation.alone():
                return await self._run_and_commit(data, claim, clock, may_go_on)
        if not isolation.is_open:
            await isolation.opened()
        await self._count_claim(data, claim, claim.fence)
        isolation.begin()
        try:
            return await self._run_and_commit(data, claim, clock, may_go_on)
        finally:
            isolation.end()

    async def _run_and_commit(
        self, data: ExecutionData, claim: Claim, clock: ExecutionClock, may_go_on: MayGoOn
    ) -> KeptToken | None:
        # crash here: the lease expires and the scheduler sends the token again
        failpoint.hit("claimed")
        if claim.again and await self._apply_stored_outcome(data, claim):
            return None
        run, timeline = await self._run(data, claim, clock)
        # crash here: an effect ran but no result is recorded; this is the only window in which it can run again
        failpoint.hit("ran")
        if not _succeeded(run.decisions[0]) and await self._lease_lost(data, run, claim):
            return None
        node = only_successor(run.decisions)
        decisions = await self._record(data, run, claim, may_end=node is None)
        self._report(data, run, decisions, timeline, claim)
        # crash here: the next claim finds the recorded result and applies it; nothing runs again
        failpoint.hit("journaled")
        if not _succeeded(decisions[0]):
            await self._cancel_children(data, decisions[0], claim)
        successor = None
        if node is not None and self._sticky and decisions is run.decisions and may_go_on():
            successor = self._successor(data.plan, node, claim)
        return await self._apply_and_send(data, run, decisions, successor)

    def _successor(self, plan: Plan, node: int, claim: Claim) -> int | None:
        """Return the only node behind the run if it has effects and is of the same queue. A pure one is behind it only
        if the run has reached its bound."""
        if plan.nodes[node].pure:
            return None
        same_queue = plan.nodes[node].node.queue == plan.nodes[claim.token.node].node.queue
        return node if same_queue else None

    async def _load_execution(self, delivery: Delivery) -> ExecutionData:
        execution, token = delivery.execution, delivery.token
        context: list[Any] = [self._owner, execution, (), token]
        enter_context(context)
        try:
            data = self._data_cache.cached(execution) or await self._open_execution(delivery)
        except ExecutionNotFoundError as unknown:
            raise UnservableTokenError(unknown.message, code=unknown.code) from None
        if not 0 <= token.node < len(data.plan.nodes):
            raise UnservableTokenError(f"{execution} has no node {token.node}", code="UNKNOWN_NODE")
        context[2] = data.plan.ids
        return data

    async def _open_execution(self, delivery: Delivery) -> ExecutionData:
        """Return the data of an execution. The record in a message may be of an execution that was never accepted."""
        try:
            return await self._data_cache.get(delivery.execution, delivery.accepted)
        except DefinitionNotFoundError:
            if delivery.accepted is None:
                raise
            return await self._data_cache.get(delivery.execution)

    async def _check_known(self, execution: str) -> None:
        """Raise if the journal does not know an execution, whose record came with its message."""
        if await self._journal.accepted(execution) is None:
            self._data_cache.forget(execution)
            raise UnservableTokenError(f"no execution has the id {execution}", code="UNKNOWN_EXECUTION")

    async def _claim(self, data: ExecutionData, token: Token) -> Claim:
        """Claim the token. Only nodes with effects take a lease; a pure node may run twice without harm."""
        leased = token.fate is TokenPurpose.RUN and not data.plan.nodes[token.node].pure
        asked = time.monotonic()
        claim = await self._state.claim(data.accepted.id, token, self._owner, leased=leased)
        self._counters.deliveries[claim.verdict] += 1
        return claim if claim.fence is None else replace(claim, asked=asked)

    async def _count_claim(self, data: ExecutionData, claim: Claim, fence: Fence) -> None:
        """Count the claim of a token. End the execution if its worker has died too often."""
        execution, token = data.accepted.id, claim.token
        count = await self._journal.count_claim(
            execution, token.node, token.path, fence, claim.now, durable=claim.again or claim.recovered
        )
        crashes = count - 1 - claim.given_back
        if crashes < MAX_CLAIMS + token.attempt:
            return
        name = token_name(token.node, token.path, data.plan.ids)
        origin = error_origin(data.plan, token.node, token.path, token.attempt)
        message = f"{name} crashed its worker {crashes} times"
        failure = Error("WORKER_CRASH", message, {"node": name}, True, origin=origin)
        await self._finisher.finish(execution, FinishExecution("failed", failure), claim.now, counted=False)
        raise UnservableTokenError(failure.message, code=failure.code)

    def _release_lease(self, data: ExecutionData, claim: Claim) -> None:
        if claim.fence is not None:
            self._leases.release(data.accepted.id, claim.token, claim.fence)
            self._running.end(data.accepted.id, claim.token)

    async def _run(
        self, data: ExecutionData, claim: Claim, clock: ExecutionClock
    ) -> tuple[InlineRun, _Timeline]:
        """Run the token's node, then the pure nodes behind it that need no commit in between."""
        first = claim.token
        races = data.plan.nodes[first.node].needs_choice and first.fate is TokenPurpose.RUN
        if races and claim.verdict == "run":
            first = await self._record_race_winner(data, first, clock.now())
        run = InlineRun(data.plan, first, in_place=self._in_place)
        reader = data.reader()
        timeline = _Timeline(first)
        traced = self._instrumentation.tracer is not None
        began = clock.now()
        while (token := run.next()) is not None:
            decision = await self._decide(data, reader, token, claim, clock, began, first=token is first)
            run.add(decision)
            began = max(decision.at, clock.now())
            timeline.moments.append(now_ns())
            if traced and token is not first:
                timeline.tokens.append(token)
            if type(decision.fact) is NodeResult:
                reader.own[(token.node, token.path)] = decision.fact
        reader.close()
        return run, timeline

    async def _decide(
        self,
        data: ExecutionData,
        reader: ValueReader,
        token: Token,
        claim: Claim,
        clock: ExecutionClock,
        began: int,
        *,
        first: bool,
    ) -> Decision:
        """Run one node and derive the decision from its outcome; a token that is not to run is decided directly.
        `began` is when the node began, which is the time that it sees as now."""
        plan = data.plan
        node = plan.nodes[token.node]
        if first and claim.verdict == "cancelled":
            if node.type.launches:
                await self._children.abandon(data, token, began)
            return step(plan, token, Cancelled(), began)
        if token.fate is not TokenPurpose.RUN:
            if node.type.launches and token.fate is TokenPurpose.OVERDUE:
                await self._children.abandon(data, token, began)
            return step_unrun(plan, token, began)
        # Starting a child twice finds the first child, so the outcome of such a node is never unknown.
        if not node.pure:
            self._leases.check(data.accepted.id, token)
        at_most_once = node.node.at_most_once and not (node.pure or node.type.launches or token.resumed)
        if at_most_once and not await self._mark_effect_started(data, token, began):
            return step(plan, token, Failure(UNKNOWN_OUTCOME), began)
        outcome = await self._runner.run(data, reader, token, claim, began)
        now = clock.now()
        try:
            outcome = await self._persist_output(data, reader, token, outcome)
        except StoreUnavailableError:
            raise
        except RuneError as error:
            outcome = Failure(Error(error.code, error.message))
        fact = fact_for_outcome(plan, token, outcome, now)
        return decision_for_fact(plan, self._with_attempt(data, token, fact, began if now > began else 0))

    def _with_attempt(self, data: ExecutionData, token: Token, fact: TokenFact, began: int) -> TokenFact:
        """Add to the fact of a run when it began, and of a run with effects its worker."""
        logged = bool(self._logs.logged) and self._logs.was_logged(data.accepted.id, token)
        if type(fact) is NodeResult or type(fact) is AttemptFailed:
            worker = "" if data.plan.nodes[token.node].pure else self._owner
            if began or worker or logged:
                return replace(fact, began=began, worker=worker, logged=logged)
        elif type(fact) is NodeSuspended and (began or logged):
            return replace(fact, began=began, logged=logged)
        return fact

    async def _record_race_winner(self, data: ExecutionData, token: Token, now: int) -> Token:
        """Record which arrival opened the race before any effect depends on it; return the token with the winner."""
        proposed = RaceWinner(token.node, token.path, now, token.arrived, token.payload, token.error)
        (winner,) = await self._journal.record(data.accepted.id, [proposed])
        failpoint.hit("chosen")
        applied = await self._state.apply(data.accepted.id, [decision_for_fact(data.plan, winner)])
        await self._queue.send(data.accepted.id, applied.emitted, data.accepted.priority)
        return replace(token, arrived=winner.arrived, payload=winner.payload, error=winner.error)

    async def _mark_effect_started(self, data: ExecutionData, token: Token, now: int) -> bool:
        """Record that an at-most-once effect is about to run. Return False if an earlier run recorded it already."""
        started = EffectStarted(token.node, token.path, now, token.attempt)
        (stored,) = await self._journal.record(data.accepted.id, [started])
        # crash here: the effect did not run, but the journal does not show that; the node fails with UNKNOWN_OUTCOME
        failpoint.hit("begun")
        return stored is started

    async def _persist_output(
        self, data: ExecutionData, reader: ValueReader, token: Token, outcome: Outcome
    ) -> Outcome:
        """Replace an output by its stored form. A large value is in the blob store before a row refers to it."""
        if type(outcome) is Output:
            stored = await data.store_output(
                token.node, token.path, outcome.value, token.payload, reader.entry_values()
            )
            if type(stored) is not Same:
                reader.values[(token.node, token.path)] = outcome.value
            return Output(stored, outcome.outlet)
        if type(outcome) is FanOut and outcome.value is not None:
            paged = await data.store_items(token.node, token.path, outcome.value)
            return FanOut(outcome.count, paged)
        return outcome

    async def _lease_lost(self, data: ExecutionData, run: InlineRun, claim: Claim) -> bool:
        """Return whether the run failed after its lease expired: a stale holder must not record a failure, because the
        worker that took over may succeed. A stale success is harmless, the journal keeps the first result."""
        fact = run.decisions[0].fact
        failed = type(fact) is AttemptFailed or (type(fact) is NodeResult and fact.status == "failed")
        if not failed or claim.fence is None:
            return False
        token = claim.token
        return not await self._state.renew(data.accepted.id, token.node, token.path, claim.fence)

    async def _record(
        self, data: ExecutionData, run: InlineRun, claim: Claim, *, may_end: bool
    ) -> list[Decision]:
        """Record the facts of the run. If another holder recorded the first fact, drop the run and use that fact. With
        `may_end`, no token is known to follow the run."""
        facts = [each.fact for each in run.decisions if each.fact is not None]
        if not facts:
            return run.decisions
        stored = await self._record_with_retry(data, run, facts, claim, may_end=may_end)
        if stored[0] is not facts[0]:
            fact = stored[0]
            assert not isinstance(fact, ExecutionEnded)
            self._instrumentation.duplicate_result()
            self._instrumentation.outcome_found(data.accepted, data.plan, claim.token, fact)
            return [decision_for_fact(data.plan, fact)]
        for fact in facts:
            if type(fact) is NodeResult:
                data.cache_result(fact)
        if type(stored[-1]) is ExecutionEnded:
            self._instrumentation.ended(data.accepted, stored[-1])
        return run.decisions

    async def _record_with_retry(
        self, data: ExecutionData, run: InlineRun, facts: list[TokenFact], claim: Claim, *, may_end: bool
    ) -> Sequence[TokenFact | ExecutionEnded]:
        """Record the facts, together with the end of the execution where it is certain. While the journal is
        unavailable the worker keeps the result and the lease, so that an effect does not run again."""
        while True:
            ending = self._state.predict_end(data.accepted.id, run.decisions) if may_end else None
            end = None if ending is None else _terminal_row(*ending)
            rows = facts if end is None else [*facts, end]
            hooked = end is not None and is_hooked(data.plan.definition.settings, end)
            try:
                return await self._journal.record(data.accepted.id, rows, hooked=hooked)
            except StoreUnavailableError as error:
                if claim.fence is None:
                    raise
                log.warning("store unavailable, keeping a result until it is back: %s", error.message)
                await asyncio.sleep(STORE_RETRY_DELAY_S)

    def _report(
        self,
        data: ExecutionData,
        run: InlineRun,
        decisions: list[Decision],
        timeline: _Timeline,
        claim: Claim,
    ) -> None:
        """Count and trace the run, unless another holder's result replaced it."""
        if decisions is not run.decisions:
            return
        waited = None if claim.first is None else timeline.tokens[0].at - claim.first
        self._counters.node_finished(data.plan, decisions, timeline.moments, waited)
        if self._instrumentation.tracer is not None:
            self._instrumentation.node_finished(
                data.accepted, data.plan, timeline.tokens, decisions, timeline.moments
            )

    async def _cancel_children(self, data: ExecutionData, decision: Decision, claim: Claim) -> None:
        """End the child of an attempt that did not succeed. A slower holder may have started one after another worker
        had looked for it; once the result is recorded no child is accepted, so the child found here is the last one."""
        fact, token = decision.fact, claim.token
        failed = type(fact) is AttemptFailed or (type(fact) is NodeResult and fact.status != "ok")
        resumed_by_child = token.resumed and token.fate is TokenPurpose.RUN
        if failed and not resumed_by_child and data.plan.nodes[token.node].type.launches:
            await self._children.abandon(data, token, claim.now)

    async def _apply_and_send(
        self, data: ExecutionData, run: InlineRun, decisions: list[Decision], successor: int | None = None
    ) -> KeptToken | None:
        """Apply the decisions to the state, send the emitted tokens, and finish the execution if this ended it. Return
        the `successor` if the state has claimed it instead of emitting it."""
        execution = data.accepted.id
        applied: Applied
        kept_token: KeptToken | None = None
        if successor is None:
            applied = await self._state.apply(execution, decisions)
        else:
            asked = time.monotonic()
            applied = await self._state.apply_and_claim(execution, decisions, successor, self._owner)
            if applied.kept is not None:
                kept_token = replace(applied.kept, claim=replace(applied.kept.claim, asked=asked))
        # crash here: the emitted tokens are in the state; the scheduler sends those that no worker claims, and a kept
        # one when its lease expires
        failpoint.hit("applied")
        remaining = run.remaining(applied.emitted) if applied.emitted else []
        if remaining:
            await self._queue.send(execution, remaining, data.accepted.priority)
        failpoint.hit("sent")
        if applied.finish is not None:
            await self._finisher.finish(execution, applied.finish, max(applied.now, decisions[-1].at))
        return kept_token

    async def _apply_stored_outcome(self, data: ExecutionData, claim: Claim) -> bool:
        """Apply the outcome that an earlier or faster holder recorded. Return False if there is none."""
        token = claim.token
        facts = await self._journal.facts_of_token(data.accepted.id, token.node, token.path)
        stored = outcome_of(facts, token)
        if stored is None:
            return False
        decision = decision_for_fact(data.plan, stored)
        self._instrumentation.outcome_found(data.accepted, data.plan, claim.token, stored)
        await self._cancel_children(data, decision, claim)
        await self._apply_and_send(data, InlineRun(data.plan, claim.token), [decision])
        return True


def _succeeded(decision: Decision) -> bool:
    fact = decision.fact
    return type(fact) is NodeResult and fact.status == "ok"


def _terminal_row(finish: FinishExecution, at: int) -> ExecutionEnded:
    return ExecutionEnded(at, finish.status, finish.error, finish.failed_items)


class _Timeline:
    """When each token of a run was decided, in ns: the first moment is the start of the run."""

    __slots__ = ("moments", "tokens")

    def __init__(self, first: Token) -> None:
        self.tokens = [first]
        self.moments = [now_ns()]
