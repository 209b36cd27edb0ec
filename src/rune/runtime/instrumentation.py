"""Passes what this process accepted, ran and ended on to its counters and its tracer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rune.core.execution.decision import Decision
from rune.core.execution.fact import ExecutionEnded, TokenFact
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord
from rune.ports.state import DueTimer
from rune.telemetry.counters import Counters
from rune.telemetry.tracing import Traced, Tracer

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
