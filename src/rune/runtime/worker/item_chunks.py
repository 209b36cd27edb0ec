"""Runs pure items of a fan-out in chunks: several items of one node are claimed, run and committed together.

Every item keeps its own claim, its own facts and its own decisions, as if it were handled alone. An item that is not
plain (it fails, waits, needs a thread or a blob, or was claimed before) leaves its chunk and is handled alone by the
executor; so is each item of a chunk that could not be committed.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from rune.core.execution.decision import Decision
from rune.core.execution.fact import NodeResult
from rune.core.execution.inline_run import MAX_INLINE_RESULTS, InlineRun, pure_items
from rune.core.execution.outcome import Output
from rune.core.execution.step import step
from rune.core.execution.stored_value import Inline, Same
from rune.core.execution.token import Token, TokenPurpose
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError
from rune.ports.queue import Delivery
from rune.ports.state import Claim
from rune.runtime import failpoint
from rune.runtime.backend import Backend
from rune.runtime.components import EngineComponents
from rune.runtime.execution_data import ExecutionClock, ExecutionData
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded
from rune.runtime.worker.node_runner import NodeRunner
from rune.telemetry.counters import now_ns
from rune.telemetry.logs import enter_context

log = logging.getLogger("rune.executor")

MAX_SHARED = 8
"""Items of a chunk while tokens of other executions wait for the same worker."""

MAX_COMMIT_S = 0.004
"""CPU time that the items of one commit may use; then they are committed, and other tasks have a turn. Not the time
that passes: on a busy machine the commits would become smaller and more, and cost more CPU time."""

MAX_COMMIT_BYTES = 1024 * 1024
MAX_LOADS = 4
"""Values that a chunk waits for. Further items that need one are handled alone, concurrently."""

MAX_KNOWN_PLANS = 256

Single = tuple[Delivery, Claim | None]
"""A delivery to handle alone, with its claim if it is still good."""


class ItemRun:
    """A run of one item that is not committed yet: its delivery, claim, decisions and their times."""

    __slots__ = ("claim", "delivery", "moments", "run", "size", "tokens")

    def __init__(self, delivery: Delivery, claim: Claim, run: InlineRun) -> None:
        self.delivery = delivery
        self.claim = claim
        self.run = run
        self.tokens: list[Token] = []
        self.moments = [now_ns()]
        self.size = 0

    @property
    def decisions(self) -> list[Decision]:
        return self.run.decisions

    def facts(self) -> list[NodeResult]:
        return [each.fact for each in self.run.decisions if type(each.fact) is NodeResult]


class ItemChunks:
    """Handles chunks of deliveries. Keeps no state between two of them."""

    def __init__(
        self, owner: str, backend: Backend, components: EngineComponents, runner: NodeRunner, size: int
    ) -> None:
        """`size` is the number of items in a chunk; 1 handles every item alone."""
        self._owner = owner
        self._size = size
        self._journal = backend.journal
        self._state = backend.state
        self._queue = backend.queue
        self._data_cache = components.data_cache
        self._finisher = components.finisher
        self._instrumentation = components.instrumentation
        self._counters = components.instrumentation.counters
        self._runner = runner
        self._pure: OrderedDict[str, frozenset[int]] = OrderedDict()

    def limit(self, delivery: Delivery, *, shared: bool) -> int:
        """Return how many items may be handled together with this one, itself included."""
        token = delivery.token
        if self._size <= 1 or delivery.again or token.fate is not TokenPurpose.RUN or token.attempt > 1:
            return 1
        found = self._data_cache.find(delivery.execution)
        if found is None or found[1].max_parallel is not None or token.node not in self._pure_items(found[1]):
            return 1
        most = min(self._size, MAX_SHARED) if shared else self._size
        if len(token.path) > 2:
            return most
        # Items start in order: behind the last one there is none to ask the queue for.
        remaining = self._data_cache.count(delivery.execution, token.path) - token.path[-1]
        return min(most, remaining) if remaining > 0 else most

    def _pure_items(self, plan: Plan) -> frozenset[int]:
        nodes = self._pure.get(plan.hash)
        if nodes is None:
            nodes = self._pure[plan.hash] = pure_items(plan)
            if len(self._pure) > MAX_KNOWN_PLANS:
                self._pure.popitem(last=False)
        return nodes

    async def handle(self, deliveries: Sequence[Delivery]) -> list[Single]:
        """Process deliveries of one node of one execution. Return those that have to be handled alone; the others are
        acknowledged."""
        failpoint.hit("received")
        chunk = _Chunk(deliveries)
        try:
            await self._handle(chunk)
        except ExecutionEndedError as ended:
            await self._end(chunk, ended)
        except StoreUnavailableError as error:
            log.info("%d items of %s are handled alone: %s", len(chunk), chunk.execution, error.message)
        except Exception:
            log.exception("%d items of %s are handled alone", len(chunk), chunk.execution)
        return chunk.singles()

    async def _end(self, chunk: _Chunk, ended: ExecutionEndedError) -> None:
        """Acknowledge the items of an execution that has ended. If that fails, the claim of each finds it void."""
        with suppress(StoreUnavailableError):
            await self._state.end(chunk.execution, ended.end)
            for delivery, _ in chunk.singles():
                await self._queue.ack(delivery)
                chunk.settle(delivery)

    async def _handle(self, chunk: _Chunk) -> None:
        context: list[Any] = [self._owner, chunk.execution, (), None]
        enter_context(context)
        data = await self._data_cache.get(chunk.execution)
        context[2] = data.plan.ids
        await self._claim(chunk)
        # crash here: nothing is recorded; the queue delivers the items again
        failpoint.hit("claimed")
        while chunk.ready:
            runs = await self._run_some(data, chunk, chunk.clock, context)
            if runs:
                await self._commit(data, chunk, runs)

    async def _claim(self, chunk: _Chunk) -> None:
        """Claim the items. Those that another worker, the end or a pause has taken are acknowledged."""
        tokens = [each.token for each in chunk.deliveries]
        asked = time.monotonic()
        claims = await self._state.claim_all(chunk.execution, tokens, self._owner)
        chunk.clock = self._data_cache.clock_since(max(each.now for each in claims))
        deliveries = self._counters.deliveries
        for delivery, claim in zip(chunk.deliveries, claims, strict=True):
            deliveries[claim.verdict] += 1
            if claim.verdict not in ("run", "cancelled"):
                await self._queue.ack(delivery)
                chunk.settle(delivery)
            elif claim.verdict == "run" and claim.fence is None and claim.token.fate is TokenPurpose.RUN:
                chunk.ready.append((delivery, claim))
            else:
                chunk.leave(delivery, replace(claim, asked=asked))

    async def _run_some(
        self, data: ExecutionData, chunk: _Chunk, clock: ExecutionClock, context: list[Any]
    ) -> list[ItemRun]:
        """Run the next items, as many as one commit takes. An item that is not plain leaves the chunk."""
        runs: list[ItemRun] = []
        results = size = 0
        end = time.thread_time() + MAX_COMMIT_S
        while chunk.ready and results < MAX_INLINE_RESULTS and size < MAX_COMMIT_BYTES:
            delivery, claim = chunk.ready.popleft()
            context[3] = claim.token
            run = await self._run_item(data, chunk, delivery, claim, clock)
            if run is None:
                chunk.leave(delivery, claim)
            else:
                runs.append(run)
                results += len(run.decisions)
                size += run.size
            if time.thread_time() >= end:
                break
        failpoint.hit("ran")
        return runs

    async def _run_item(
        self, data: ExecutionData, chunk: _Chunk, delivery: Delivery, claim: Claim, clock: ExecutionClock
    ) -> ItemRun | None:
        reader = data.reader()
        try:
            while True:
                try:
                    return self._run_nodes(data, reader, delivery, claim, clock)
                except ValueNotLoaded as missing:
                    chunk.loads += 1
                    if chunk.loads > MAX_LOADS:
                        return None
                    await data.load(missing.what, reader)
        except RuneError:
            return None
        finally:
            reader.close()

    def _run_nodes(
        self,
        data: ExecutionData,
        reader: ValueReader,
        delivery: Delivery,
        claim: Claim,
        clock: ExecutionClock,
    ) -> ItemRun | None:
        """Run the nodes of an item, without a turn of the event loop; None unless each of them succeeds."""
        plan, runner = data.plan, self._runner
        item_run = ItemRun(delivery, claim, InlineRun(plan, claim.token))
        run, moments = item_run.run, item_run.moments
        began = clock.now()
        while (token := run.next()) is not None:
            outcome = runner.run_pure(data, reader, token, claim, began)
            if type(outcome) is not Output:
                return None
            stored = data.inline_output(outcome.value, token.payload, reader.entry_values())
            if type(stored) is Inline:
                reader.values[(token.node, token.path)] = outcome.value
                item_run.size += len(stored.data)
            elif type(stored) is not Same:
                return None
            now = clock.now()
            decision = step(plan, token, Output(stored, outcome.outlet), now)
            fact = decision.fact
            if type(fact) is not NodeResult or fact.status != "ok":
                return None
            if now > began:
                fact = replace(fact, began=began)
                decision = replace(decision, fact=fact)
            run.add(decision)
            began = now
            moments.append(now_ns())
            item_run.tokens.append(token)
            reader.own[(token.node, token.path)] = fact
        return item_run

    async def _commit(self, data: ExecutionData, chunk: _Chunk, runs: list[ItemRun]) -> None:
        """Record the facts of all runs, then apply their decisions, then send what follows, then acknowledge."""
        execution = chunk.execution
        recorded = await self._record(data, chunk, runs)
        # crash here: the next claim of each item finds its recorded result and applies it; nothing runs again
        failpoint.hit("journaled")
        if not recorded:
            return
        applied = await self._state.apply_all(execution, [each.decisions for each in recorded])
        # crash here: the emitted tokens are in the state; the scheduler sends those that no worker claims
        failpoint.hit("applied")
        if applied.emitted:
            await self._queue.send(execution, applied.emitted, data.accepted.priority)
        failpoint.hit("sent")
        if applied.finish is not None:
            at = max(applied.now, *(each.decisions[-1].at for each in recorded))
            await self._finisher.finish(execution, applied.finish, at)
        # crash here: the queue delivers the items again, and their claims find them done
        for run in recorded:
            await self._queue.ack(run.delivery)
            chunk.settle(run.delivery)

    async def _record(self, data: ExecutionData, chunk: _Chunk, runs: list[ItemRun]) -> list[ItemRun]:
        """Record the facts of the runs and return the runs that were recorded. An item whose result another worker has
        recorded leaves the chunk: its next claim finds that result."""
        facts = [each.facts() for each in runs]
        answers = await self._journal.record_all(chunk.execution, facts)
        recorded: list[ItemRun] = []
        for run, run_facts, stored in zip(runs, facts, answers, strict=True):
            if isinstance(stored, ExecutionEndedError):
                raise stored
            if isinstance(stored, BaseException):
                continue
            if stored[0] is not run_facts[0]:
                self._instrumentation.duplicate_result()
                continue
            recorded.append(run)
            for fact in run_facts:
                data.cache_result(fact)
            self._report(data, run)
        return recorded

    def _report(self, data: ExecutionData, run: ItemRun) -> None:
        first = run.claim.first
        waited = None if first is None else run.claim.token.at - first
        self._counters.node_finished(data.plan, run.decisions, run.moments, waited)
        if self._instrumentation.tracer is not None:
            self._instrumentation.node_finished(
                data.accepted, data.plan, run.tokens, run.decisions, run.moments
            )


class _Chunk:
    """The deliveries of a chunk: which of them are to run, and which have to be handled alone."""

    __slots__ = ("_open", "clock", "deliveries", "execution", "loads", "ready")

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries
        self.execution = deliveries[0].execution
        self.ready: deque[tuple[Delivery, Claim]] = deque()
        self.clock: ExecutionClock  # from the claim on; without one no delivery has a claim
        self.loads = 0
        self._open: dict[int, Single] = {id(delivery): (delivery, None) for delivery in deliveries}

    def __len__(self) -> int:
        return len(self._open)

    def settle(self, delivery: Delivery) -> None:
        """Note that a delivery is acknowledged."""
        del self._open[id(delivery)]

    def leave(self, delivery: Delivery, claim: Claim) -> None:
        """Note that a delivery is to be handled alone, under its claim."""
        self._open[id(delivery)] = (delivery, claim)

    def singles(self) -> list[Single]:
        """Return the deliveries that are not acknowledged. Their claims are of now: other items of the chunk may have
        taken long since, and their nodes have not begun."""
        return [
            (delivery, None if claim is None else replace(claim, now=self.clock.now()))
            for delivery, claim in self._open.values()
        ]
