"""The witness: sees what this process accepted, ran and ended, and passes it on to the meter and the tracer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rune.core.execution.decision import Decision
from rune.core.execution.fact import End, TokenFact
from rune.core.execution.token import Token
from rune.core.plan.model import Plan
from rune.ports.journal import Accepted
from rune.ports.state import Due
from rune.telemetry.counters import Meter
from rune.telemetry.tracing import Traced, Tracer

now_ns = time.perf_counter_ns


class Witness:
    """Only what the journal has taken is counted, by whoever wrote it: all processes together count each row once."""

    def __init__(self, meter: Meter | None = None, tracer: Tracer | None = None, worker: str = "") -> None:
        self.meter = meter or Meter()
        self.tracer = tracer
        self.worker = worker

    def _traced(self, tracer: Tracer, accepted: Accepted) -> Traced:
        return tracer.traced(accepted.id, accepted.workflow, accepted.at, accepted.trace)

    def starting(self) -> str:
        """The trace context to be kept with a start."""
        return "" if self.tracer is None else self.tracer.arriving()

    def accepted(self) -> None:
        """A start is in the journal, and it is ours."""
        self.meter.starts += 1

    def outgoing(self, accepted: Accepted, plan: Plan, token: Token) -> str:
        """The trace context for what a run of this token calls or starts; empty where nobody traces."""
        if self.tracer is None:
            return ""
        return self.tracer.outgoing(self._traced(self.tracer, accepted), plan, token)

    def ran(
        self,
        accepted: Accepted,
        plan: Plan,
        tokens: Sequence[Token],
        decisions: Sequence[Decision],
        moments: Sequence[int],
    ) -> None:
        """A run is in the journal, and it is ours; that it is counted is seen to already."""
        if self.tracer is not None:
            traced = self._traced(self.tracer, accepted)
            self.tracer.ran(traced, plan, tokens, decisions, moments, self.worker)

    def found(self, accepted: Accepted, plan: Plan, token: Token, fact: TokenFact) -> None:
        """What a token came to was in the journal before us."""
        if self.tracer is not None:
            self.tracer.found(self._traced(self.tracer, accepted), plan, token, fact, self.worker)

    def twin(self) -> None:
        """We had a result for a token that had one."""
        self.meter.twins += 1

    def ended(self, accepted: Accepted | None, end: End) -> None:
        """A terminal row is in the journal, and it is ours."""
        self.meter.finished(end, None if accepted is None else max(0, end.at - accepted.at))
        if self.tracer is not None and accepted is not None:
            self.tracer.finished(self._traced(self.tracer, accepted), end)

    async def close(self) -> None:
        """Have what is traced sent off."""
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    def fired(self, due: Due) -> None:
        """A timer was moved on."""
        if due.due is not None:
            self.meter.fired(due.timer.kind, max(0, due.now - due.due))
