"""One attempt: the walk of a token from delivery to acknowledgement, in one direction.

    receive → claim → load → resolve → run → decide → journal → state → queue → ack

The comments say what a crash leaves behind at that place, and who picks it up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rune.codec.facts import Same
from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.fact import AttemptFailed as TryAgain
from rune.core.execution.fact import (
    EffectStarted,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    RaceWinner,
    TokenFact,
)
from rune.core.execution.inline_run import InlineRun
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output
from rune.core.execution.routing import decision_for_fact
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose, token_name
from rune.core.plan.model import NodePlan
from rune.errors import RuneError
from rune.nodes.registry import Registry
from rune.nodes.resources import Resources
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError, TokenEndedError
from rune.ports.queue import Delivery
from rune.ports.state import Applied, Claim, Fence
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.components import EngineComponents
from rune.runtime.instrumentation import now_ns
from rune.runtime.values import ExecutionData, ExecutionNotFoundError, ValueReader
from rune.runtime.worker.node_runner import CredentialPolicy, NodeRunner, ProgressCallback
from rune.telemetry.logs import LOG_CONTEXT

log = logging.getLogger("rune.attempt")

MAX_CLAIMS = 5
UNKNOWN_OUTCOME = Error(
    "UNKNOWN_OUTCOME", "an earlier run of this node broke off, and it must not run twice", engine=True
)
STORE_RETRY_DELAY_S = 0.5  # s


class UnservableTokenError(RuneError):
    """A hint that nobody can serve: nothing is known of what it is about, or its execution has been ended for it."""


class Executor:
    """Handles deliveries. It holds no state of its own: everything it knows it has asked for."""

    def __init__(
        self,
        owner: str,
        backend: Backend,
        parts: EngineComponents,
        registry: Registry,
        world: Resources,
        *,
        in_place: bool = True,
        told: ProgressCallback | None = None,
    ) -> None:
        self._owner = owner
        self._journal = backend.journal
        self._state = backend.state
        self._queue = backend.queue
        self._leases = parts.leases
        self._books = parts.books
        self._endings = parts.endings
        self._children = parts.children
        self._witness = parts.witness
        self._meter = parts.witness.meter
        permits = CredentialPolicy(backend.grants, backend.library)
        self._runner = NodeRunner(registry, parts.leases, parts.children, permits, parts.witness, world, told)
        self._in_place = in_place

    async def handle(self, delivery: Delivery) -> bool:
        """Take a hint to its end. False: somebody else holds the token, so nothing is known of how it goes."""
        failpoint.hit("received")
        execution, token = delivery.execution, delivery.token
        place: list[Any] = [self._owner, execution, (), token]
        LOG_CONTEXT.set(place)
        book = await self._load_execution(execution, token)
        node = book.plan.nodes[token.node]
        leased = token.fate is TokenPurpose.RUN and not node.pure
        place[2] = book.plan.ids
        claim = await self._state.claim(execution, token, self._owner, leased=leased)
        self._meter.deliveries[claim.verdict] += 1
        if claim.verdict in ("run", "cancelled"):
            try:
                if claim.fence is not None:
                    await self._hold_lease(book, claim, claim.fence)
                failpoint.hit("claimed")  # crash here: the lease runs out and the token is sent again
                await self._run_and_commit(book, node, claim)
            except ExecutionEndedError as ended:
                await self._state.end(execution, ended.end)
            except TokenEndedError:
                await self._apply_stored_outcome(book, claim)
            finally:
                if claim.fence is not None:
                    self._leases.release(execution, claim.token, claim.fence)
        await self._queue.ack(
            delivery
        )  # crash here: it is delivered again, and the claim answers that it is done
        return claim.verdict != "held"

    async def _load_execution(self, execution: str, token: Token) -> ExecutionData:
        try:
            book = await self._books.get(execution)
        except ExecutionNotFoundError as unknown:
            raise UnservableTokenError(unknown.message, code=unknown.code) from None
        if not 0 <= token.node < len(book.plan.nodes):
            raise UnservableTokenError(f"{execution} has no node {token.node}", code="UNKNOWN_NODE")
        return book

    async def _hold_lease(self, book: ExecutionData, claim: Claim, fence: Fence) -> None:
        """Note the claim and keep its lease. A token that killed its worker again and again ends its execution."""
        execution, token = book.accepted.id, claim.token
        self._leases.hold(execution, token, fence)
        count = await self._journal.count_claim(
            execution, token.node, token.path, fence, claim.now, durable=claim.again or claim.recovered
        )
        if count <= MAX_CLAIMS + token.attempt:
            return
        name = token_name(token.node, token.path, book.plan.ids)
        failure = Error("WORKER_CRASH", f"{name} ended its worker {count - 1} times", {"node": name}, True)
        await self._endings.finish(execution, FinishExecution("failed", failure), claim.now)
        raise UnservableTokenError(failure.message, code=failure.code)

    async def _run_and_commit(self, book: ExecutionData, node: NodePlan, claim: Claim) -> None:
        token = claim.token
        if claim.again and await self._apply_stored_outcome(book, claim):
            return
        if node.needs_choice and token.fate is TokenPurpose.RUN and claim.verdict == "run":
            token = await self._record_race_winner(book, token, claim.now)
        run = InlineRun(book.plan, token, in_place=self._in_place)
        page = book.reader()
        tokens = [token]
        moments = [now_ns()]
        traced = self._witness.tracer is not None
        while (each := run.next()) is not None:
            decision = await self._decide(book, page, each, claim, first=each is token)
            run.add(decision)
            moments.append(now_ns())
            if traced and each is not token:
                tokens.append(each)
            if type(decision.fact) is NodeResult:
                page.own[(each.node, each.path)] = decision.fact
        page.close()
        failpoint.hit(
            "ran"
        )  # crash here: an effect was made and nobody knows; the only window in which it can repeat
        if await self._lease_lost(book, run, claim):
            return
        decisions = await self._record(book, run, claim)
        if decisions is run.decisions:
            first = claim.first
            self._meter.node_finished(
                book.plan, decisions, moments, None if first is None else token.at - first
            )
            if traced:
                self._witness.node_finished(book.accepted, book.plan, tokens, decisions, moments)
        failpoint.hit("journaled")  # crash here: the row is found and applied, nothing runs again
        await self._cancel_children(book, decisions[0], claim)
        await self._apply_and_send(book, run, decisions)

    async def _apply_stored_outcome(self, book: ExecutionData, claim: Claim) -> bool:
        """Let follow what an earlier or a quicker holder wrote down; False where nobody did."""
        stored = await self._find_stored_outcome(book, claim.token)
        if stored is None:
            return False
        decision = decision_for_fact(book.plan, stored)
        self._witness.outcome_found(book.accepted, book.plan, claim.token, stored)
        await self._cancel_children(book, decision, claim)
        await self._apply_and_send(book, InlineRun(book.plan, claim.token), [decision])
        return True

    async def _cancel_children(self, book: ExecutionData, decision: Decision, claim: Claim) -> None:
        """An attempt that did not come out well may have a child, started by a slower holder when somebody had already
        looked for it. From the row on none is accepted, so what is there now is all; it ends before anything follows,
        and whoever finds the row alone comes by here too."""
        fact, token = decision.fact, claim.token
        over = type(fact) is TryAgain or (type(fact) is NodeResult and fact.status != "ok")
        heard = token.resumed and token.fate is TokenPurpose.RUN  # it was the end of the child that woke it
        if over and not heard and book.plan.nodes[token.node].type.launches:
            await self._children.abandon(book, token, claim.now)

    async def _find_stored_outcome(self, book: ExecutionData, token: Token) -> TokenFact | None:
        """How this attempt has ended, if an earlier holder wrote that down and came no further."""
        for fact in await self._journal.facts_of_token(book.accepted.id, token.node, token.path):
            if type(fact) is NodeResult:
                return fact
            tried = type(fact) is TryAgain and fact.attempt == token.attempt
            waits = type(fact) is NodeSuspended and fact.attempt == token.attempt and not token.resumed
            if tried or waits:
                return fact
        return None

    async def _record_race_winner(self, book: ExecutionData, token: Token, now: int) -> Token:
        """Who opened a race is a fact before anything with an effect follows from it."""
        mine = RaceWinner(token.node, token.path, now, token.arrived, token.payload, token.error)
        (fact,) = await self._journal.record(book.accepted.id, [mine])
        failpoint.hit("chosen")
        assert isinstance(fact, RaceWinner)
        applied = await self._state.apply(book.accepted.id, [decision_for_fact(book.plan, fact)])
        await self._queue.send(book.accepted.id, applied.emitted, book.accepted.priority)
        return replace(token, arrived=fact.arrived, payload=fact.payload, error=fact.error)

    async def _decide(
        self, book: ExecutionData, page: ValueReader, token: Token, claim: Claim, *, first: bool
    ) -> Decision:
        plan = book.plan
        node = plan.nodes[token.node]
        if first and claim.verdict == "cancelled":
            if node.type.launches:
                await self._children.abandon(book, token, claim.now)
            return step(plan, token, Cancelled(), claim.now)
        if token.fate is not TokenPurpose.RUN:
            if node.type.launches and token.fate is TokenPurpose.OVERDUE:
                await self._children.abandon(book, token, claim.now)
            return step_unrun(plan, token, claim.now)
        # To start an execution twice is to find the first one: nothing about it is unknown.
        once = node.node.at_most_once and not (node.pure or node.type.launches or token.resumed)
        if once and not await self._mark_effect_started(book, token, claim.now):
            return step(plan, token, Failure(UNKNOWN_OUTCOME), claim.now)
        outcome = await self._runner.run(book, page, token, claim)
        now = self._books.cached(claim.now)
        try:
            decision = step(plan, token, await self._persist_output(book, page, token, outcome), now)
        except StoreUnavailableError:
            raise
        except RuneError as error:
            decision = step(plan, token, Failure(Error(error.code, error.message)), now)
        if now > claim.now and type(decision.fact) is NodeResult:
            return replace(decision, fact=replace(decision.fact, began=claim.now))
        return decision

    async def _mark_effect_started(self, book: ExecutionData, token: Token, now: int) -> bool:
        """Say that an effect is about to be made; False: somebody said so before, and what became of it is unknown."""
        mine = EffectStarted(token.node, token.path, now, token.attempt)
        (stored,) = await self._journal.record(book.accepted.id, [mine])
        failpoint.hit("begun")  # crash here: the effect was not made, but nobody can know
        return stored is mine

    async def _persist_output(
        self, book: ExecutionData, page: ValueReader, token: Token, outcome: Outcome
    ) -> Outcome:
        """The outcome with its value written down: what is large lies in the blob store before a row names it."""
        if type(outcome) is Output:
            kept = await book.store_output(
                token.node, token.path, outcome.value, token.payload, page.entry_values()
            )
            if type(kept) is not Same:
                page.values[(token.node, token.path)] = outcome.value
            return Output(kept, outcome.outlet)
        if type(outcome) is FanOut and outcome.value is not None:
            paged = await book.store_items(token.node, token.path, outcome.value)
            return FanOut(outcome.count, paged)
        return outcome

    async def _lease_lost(self, book: ExecutionData, run: InlineRun, claim: Claim) -> bool:
        """A failure is journaled only by a holder that proves its fence; a stale one drops it."""
        fact = run.decisions[0].fact
        failed = type(fact) is TryAgain or (type(fact) is NodeResult and fact.status == "failed")
        if not failed or claim.fence is None:
            return False
        token = claim.token
        return not await self._state.renew(book.accepted.id, token.node, token.path, claim.fence)

    async def _record_with_retry(
        self, book: ExecutionData, run: InlineRun, facts: list[Fact], claim: Claim
    ) -> Sequence[Fact]:
        """Write the facts, and with them the end where it is certain. An effect that was made is not made again because
        the journal is away: its holder keeps the result, and the lease, until it is back."""
        while True:
            ending = self._state.predict_end(book.accepted.id, run.decisions)
            end = [] if ending is None else [ExecutionEnded(ending[1], ending[0].status, ending[0].error)]
            try:
                return await self._journal.record(book.accepted.id, [*facts, *end])
            except StoreUnavailableError as away:
                if claim.fence is None:
                    raise
                log.warning("the store is away, keeping a result: %s", away.message)
                await asyncio.sleep(STORE_RETRY_DELAY_S)

    async def _record(self, book: ExecutionData, run: InlineRun, claim: Claim) -> list[Decision]:
        """If the first fact was somebody else's, the whole run is dropped and the stored fact used."""
        facts: list[Fact] = [each.fact for each in run.decisions if each.fact is not None]
        if not facts:
            return run.decisions
        stored = await self._record_with_retry(book, run, facts, claim)
        if stored[0] is not facts[0]:
            fact = stored[0]
            assert not isinstance(fact, ExecutionEnded)
            self._witness.duplicate_result()
            self._witness.outcome_found(book.accepted, book.plan, claim.token, fact)  # type: ignore[arg-type]
            return [decision_for_fact(book.plan, fact)]  # type: ignore[arg-type]
        for fact in facts:
            if type(fact) is NodeResult:
                book.cache_result(fact)
        if type(stored[-1]) is ExecutionEnded:
            self._witness.ended(book.accepted, stored[-1])
        return run.decisions

    async def _apply_and_send(self, book: ExecutionData, run: InlineRun, decisions: list[Decision]) -> None:
        """State, then queue, then the end if it came."""
        execution = book.accepted.id
        applied: Applied = await self._state.apply(execution, decisions)
        failpoint.hit("applied")  # crash here: what was emitted is in the state; the sweeper sends it
        left = run.remaining(applied.emitted) if applied.emitted else []
        if left:
            await self._queue.send(execution, left, book.accepted.priority)
        failpoint.hit("sent")
        if applied.finish is not None:
            await self._endings.finish(execution, applied.finish, applied.now)
