"""The witness: sees what this process accepted, ran and ended, and passes it on to the meter and the tracer."""

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
    """Only what the journal has taken is counted, by whoever wrote it: all processes together count each row once."""

    def __init__(self, meter: Counters | None = None, tracer: Tracer | None = None, worker: str = "") -> None:
        self.meter = meter or Counters()
        self.tracer = tracer
        self.worker = worker

    def _traced(self, tracer: Tracer, accepted: ExecutionRecord) -> Traced:
        return tracer.traced(accepted.id, accepted.workflow, accepted.at, accepted.trace)

    def incoming_trace(self) -> str:
        """The trace context to be kept with a start."""
        return "" if self.tracer is None else self.tracer.arriving()

    def accepted(self) -> None:
        """A start is in the journal, and it is ours."""
        self.meter.starts += 1

    def outgoing_trace(self, accepted: ExecutionRecord, plan: Plan, token: Token) -> str:
        """The trace context for what a run of this token calls or starts; empty where nobody traces."""
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
        """A run is in the journal, and it is ours; that it is counted is seen to already."""
        if self.tracer is not None:
            traced = self._traced(self.tracer, accepted)
            self.tracer.node_finished(traced, plan, tokens, decisions, moments, self.worker)

    def outcome_found(self, accepted: ExecutionRecord, plan: Plan, token: Token, fact: TokenFact) -> None:
        """What a token came to was in the journal before us."""
        if self.tracer is not None:
            self.tracer.outcome_found(self._traced(self.tracer, accepted), plan, token, fact, self.worker)

    def duplicate_result(self) -> None:
        """We had a result for a token that had one."""
        self.meter.twins += 1

    def ended(self, accepted: ExecutionRecord | None, end: ExecutionEnded) -> None:
        """A terminal row is in the journal, and it is ours."""
        self.meter.finished(end, None if accepted is None else max(0, end.at - accepted.at))
        if self.tracer is not None and accepted is not None:
            self.tracer.finished(self._traced(self.tracer, accepted), end)

    async def close(self) -> None:
        """Have what is traced sent off."""
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    def timer_fired(self, due: DueTimer) -> None:
        """A timer was moved on."""
        if due.due is not None:
            self.meter.timer_fired(due.timer.kind, max(0, due.now - due.due))
