"""Counters and duration histograms of one process, a snapshot of the stores, and what updates them.

They are plain numbers, cheap to update, and are converted to Prometheus samples only at a scrape.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, TokenFact
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, dead_letter_code
from rune.ports.state import DueTimer
from rune.telemetry.tracing import Traced, Tracer

# Buckets by bit length of a duration in ns; 2 ** 63 ns are three centuries.
BUCKET_COUNT = 64

# Exponents of the exported bucket edges (2 ** n ns): from 66 µs to almost five hours, each four times the previous.
EDGE_BITS = tuple(range(16, 46, 2))

OK, RETRIED, SUSPENDED = "ok", "retried", "suspended"
MAX_PLANS = 256
NS_PER_MS = 1_000_000


class Histogram:
    """Durations counted by bit length, so that adding one takes an index and two additions."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKET_COUNT
        self.total = 0  # ns

    def add(self, nanos: int) -> None:
        """Add a duration in nanoseconds."""
        nanos = max(nanos, 0)
        self.counts[min(nanos.bit_length(), BUCKET_COUNT - 1)] += 1
        self.total += nanos

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """Return the sum of all durations in seconds."""
        return self.total / 1e9

    def buckets(self) -> list[tuple[float, int]]:
        """Return cumulative buckets: upper edge in seconds, and the number of shorter durations."""
        return [(2**bits / 1e9, sum(self.counts[: bits + 1])) for bits in EDGE_BITS]


class Counters:
    """Monotonic counters of one process; not thread-safe."""

    __slots__ = (
        "_plans",
        "blocks",
        "blocks_longest",
        "blocks_seconds",
        "clock_jumps",
        "deliveries",
        "duplicate_results",
        "ended",
        "executions",
        "failed_items",
        "handlers",
        "joins",
        "letters",
        "runs",
        "starts",
        "timers",
        "tokens_resent",
        "tokens_sent",
    )

    def __init__(self) -> None:
        self.starts = 0
        self.duplicate_results = 0
        self.tokens_sent = self.tokens_resent = 0
        self.blocks = 0
        self.blocks_seconds = self.blocks_longest = 0.0
        self.clock_jumps = 0
        self.runs: dict[tuple[str, str], Histogram] = {}  # by node type and status
        self._plans: dict[str, list[Histogram]] = {}
        self.deliveries: defaultdict[str, int] = defaultdict(int)  # by verdict
        self.ended: dict[str, int] = {}  # by status
        self.executions: dict[str, Histogram] = {}  # by status
        self.letters: dict[str, int] = {}  # by code
        self.failed_items = 0
        self.handlers: dict[str, int] = {}  # by what became of their start
        self.joins = Histogram()
        self.timers: dict[str, Histogram] = {}  # by kind

    def loop_blocked(self, seconds: float) -> None:
        """Count a time in which the event loop did nothing else."""
        self.blocks += 1
        self.blocks_seconds += seconds
        self.blocks_longest = max(self.blocks_longest, seconds)

    def node_finished(
        self, plan: Plan, decisions: Sequence[Decision], moments: Sequence[int], waited: int | None = None
    ) -> None:
        """Count node runs whose results this process recorded.

        `moments` are the times in ns before the first run and after each. `waited` is the time in ms that the first
        node waited as a join; a join that opens during an inline run has not waited.
        """
        histograms = self._plans.get(plan.hash) or self._plan_histograms(plan)
        before = moments[0]
        for number, decision in enumerate(decisions, 1):
            after = moments[number]
            fact = decision.fact
            if type(fact) is NodeResult and fact.status == "ok":
                histogram = histograms[decision.node]
                if fact.arrived:
                    self._join_opened(0 if number > 1 else waited)
                took = after - before
                histogram.counts[took.bit_length()] += 1
                histogram.total += took
            # Without a fact nothing ran: a skip, or further items of a fan-out.
            elif fact is not None:
                self._count_other(plan, decision.node, fact, after - before)
                if type(fact) is NodeResult and fact.arrived:
                    self._join_opened(0 if number > 1 else waited)
            before = after

    def _count_other(self, plan: Plan, node: int, fact: TokenFact, took: int) -> None:
        status = (
            fact.status if type(fact) is NodeResult else RETRIED if type(fact) is AttemptFailed else SUSPENDED
        )
        self._histogram(plan.nodes[node].type.name, status).add(took)

    def _join_opened(self, waited: int | None) -> None:
        if waited is not None:
            self.joins.add(waited * NS_PER_MS)

    def _histogram(self, type: str, status: str) -> Histogram:
        return self.runs.setdefault((type, status), Histogram())

    def _plan_histograms(self, plan: Plan) -> list[Histogram]:
        """Return the histograms of successful runs by node, looked up once per plan instead of once per run."""
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        histograms = self._plans[plan.hash] = [self._histogram(node.type.name, OK) for node in plan.nodes]
        return histograms

    def finished(self, end: ExecutionEnded, lasted: int | None) -> None:
        """Count an execution whose end this process recorded; `lasted` is its duration in ms, if known."""
        self.ended[end.status] = self.ended.get(end.status, 0) + 1
        if lasted is not None:
            self.executions.setdefault(end.status, Histogram()).add(lasted * NS_PER_MS)
        self.failed_items += end.failed_items
        code = dead_letter_code(end)
        if code is not None:
            self.letters[code] = self.letters.get(code, 0) + 1

    def timer_fired(self, kind: str, late: int) -> None:
        """Count a fired timer; `late` is its delay in ms."""
        self.timers.setdefault(kind, Histogram()).add(late * NS_PER_MS)


class QueueStats(msgspec.Struct, frozen=True):
    """Depth of one queue."""

    queue: str
    waiting: int
    held: int | None
    age: float | None


class StoreStatsSnapshot(msgspec.Struct, kw_only=True):
    """State of the stores at a scrape. None means unknown; no sample is exported then."""

    queues: tuple[QueueStats, ...] = ()
    members: dict[str, int] = {}  # by role
    dead_letters: int | None = None
    dead_messages: int | None = None
    outbox_rows: int | None = None
    outbox_lag: float | None = None
    timer_lag: float | None = None
    stuck: int | None = None
    rebuilds: int = 0
    busy: int = 0
    slots: int = 0
    errors: int = 0  # stores that did not respond


now_ns = time.perf_counter_ns


class Instrumentation:
    """Counts and traces only recorded rows, in the process that recorded them: a cluster counts each row once."""

    def __init__(self, worker: str, counters: Counters | None = None, tracer: Tracer | None = None) -> None:
        """`worker` is the name of this process in traces."""
        self.counters = counters or Counters()
        self.tracer = tracer
        self.worker = worker

    def _traced(self, tracer: Tracer, accepted: ExecutionRecord) -> Traced:
        return tracer.traced(accepted.id, accepted.workflow, accepted.at, accepted.trace)

    def incoming_trace(self) -> str:
        """Return the trace context to store with a start."""
        return "" if self.tracer is None else self.tracer.arriving()

    def accepted(self) -> None:
        """Count a start that this process recorded."""
        self.counters.starts += 1

    def outgoing_trace(self, accepted: ExecutionRecord, plan: Plan, token: Token) -> str:
        """Return the trace context for calls and starts made by a run of this token; empty without a tracer."""
        if self.tracer is None:
            return ""
        return self.tracer.outgoing(self._traced(self.tracer, accepted), plan, token)

    def node_finished(
        self,
        accepted: ExecutionRecord,
        plan: Plan,
        tokens: Sequence[Token],
        decisions: Sequence[Decision],
        moments: Sequence[int],
    ) -> None:
        """Trace a run that this process recorded. The executor counts it directly, which is faster."""
        if self.tracer is not None:
            traced = self._traced(self.tracer, accepted)
            self.tracer.node_finished(traced, plan, tokens, decisions, moments, self.worker)

    def outcome_found(self, accepted: ExecutionRecord, plan: Plan, token: Token, fact: TokenFact) -> None:
        """Trace that the outcome of a token was recorded before this process ran it."""
        if self.tracer is not None:
            self.tracer.outcome_found(self._traced(self.tracer, accepted), plan, token, fact, self.worker)

    def duplicate_result(self) -> None:
        """Count a result that was dropped because another one was recorded first."""
        self.counters.duplicate_results += 1

    def ended(self, accepted: ExecutionRecord | None, end: ExecutionEnded) -> None:
        """Count and trace an end that this process recorded."""
        self.counters.finished(end, None if accepted is None else max(0, end.at - accepted.at))
        if self.tracer is not None and accepted is not None:
            self.tracer.finished(self._traced(self.tracer, accepted), end)

    async def close(self) -> None:
        """Flush the tracer."""
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    def timer_fired(self, due: DueTimer) -> None:
        if due.due is not None:
            self.counters.timer_fired(due.timer.kind, max(0, due.now - due.due))
