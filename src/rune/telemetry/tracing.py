"""Trace contexts: ids that follow from what they name, so nothing but the start has to be carried.

The trace is that of whoever started the execution, or one of its own. A span is named by its execution and its token:
whoever exports it again exports the same one.

The tracer: one span for each execution and one for each run of a node, from what the journal has taken.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, NodeSuspended, TokenFact
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path, Token, parent, path_text
from rune.core.plan.model import Plan

SAMPLED = 1
TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
ARRIVING: ContextVar[str] = ContextVar("rune_traceparent", default="")
"""The `traceparent` that came with the request under way."""


class TraceContext(msgspec.Struct, frozen=True):
    """Where something belongs: the trace, the span around it (0: none), and whether anybody wants to see it."""

    trace: int
    span: int
    sampled: bool = True

    def header(self) -> str:
        """As W3C writes it."""
        return f"00-{self.trace:032x}-{self.span:016x}-{SAMPLED if self.sampled else 0:02x}"


def read_header(text: str) -> TraceContext | None:
    """A `traceparent`, if it is one: anything else is as if nothing had come."""
    found = TRACEPARENT.fullmatch(text.strip().lower())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    return TraceContext(trace, span, bool(int(found[4], 16) & SAMPLED)) if trace and span else None


def _hashed(size: int, *parts: str) -> int:
    data = "\x1f".join(parts).encode()
    return int.from_bytes(blake2b(data, digest_size=size).digest(), "big") or 1


def trace_of(execution: str, started_with: str, share: float = 1.0) -> TraceContext:
    """The trace of an execution, and the span it was started from. Who was not asked for decides by the id of the
    trace, so all decide the same."""
    given = read_header(started_with) if started_with else None
    if given is not None:
        return given
    trace = _hashed(16, "trace", execution)
    return TraceContext(trace, 0, (trace & (2**64 - 1)) < share * 2**64)


def execution_span(execution: str) -> int:
    """The span of an execution."""
    return _hashed(8, execution)


def node_span(execution: str, name: str, *more: str) -> int:
    """The span of the run that ended a token; with `more` that of one before it."""
    return _hashed(8, execution, name, *more)


def token_text(plan: Plan, node: int, path: Path) -> str:
    """The name of a token."""
    return f"{plan.ids[node]}@{path_text(path, plan.ids)}"


def sender(plan: Plan, edge: int, path: Path) -> tuple[int, Path] | None:
    """Who sends over an edge to a token of this lineage; None: the start itself, as triggers do not run."""
    source = plan.src[edge]
    if source in plan.triggers:
        return None
    from_split = plan.nodes[source].fans_out and plan.nodes[plan.dst[edge]].depth > plan.nodes[source].depth
    return source, parent(path) if from_split else path


def senders(plan: Plan, token: Token) -> list[tuple[int, Path] | None]:
    """Who sent a token: of a join all that arrived alive, of a list of items their split."""
    node = plan.nodes[token.node]
    if node.joins_items:
        return [(node.split_of, token.path)]
    if token.arrived:
        return [sender(plan, each.edge, token.path) for each in token.arrived]
    return [sender(plan, edge, token.path) for edge in node.in_edges[:1]]


MAX_LINKS = 128
MILLI = 1_000_000  # ns


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time. `parent` 0: nothing is around it."""

    trace: int
    id: int
    parent: int
    name: str
    began: int  # ns since the epoch
    ended: int
    attributes: dict[str, Any]
    links: tuple[int, ...] = ()
    error: str | None = None


class Traced(msgspec.Struct, frozen=True):
    """As much of an execution as its spans need."""

    execution: str
    workflow: str
    at: int
    context: TraceContext


class Sink(Protocol):
    """Where spans go."""

    def __call__(self, span: Span) -> None:
        """Take one. Nobody waits for it to arrive."""

    def close(self) -> None:
        """Send what is left."""


class Tracer:
    """Makes spans and hands them to a sink. Where there is no tracer, nothing of this costs anything."""

    def __init__(self, sink: Sink, share: float = 1.0) -> None:
        self._sink = sink
        self._share = share

    def close(self) -> None:
        """Let the sink send what it has; takes a while if nobody is there."""
        self._sink.close()

    def arriving(self) -> str:
        """The context that a start came with, to be kept with it."""
        text = ARRIVING.get()
        found = read_header(text) if text else None
        return "" if found is None else found.header()

    def traced(self, execution: str, workflow: str, at: int, started_with: str) -> Traced:
        """What the spans of an execution have in common."""
        return Traced(execution, workflow, at, trace_of(execution, started_with, self._share))

    def outgoing(self, of: Traced, plan: Plan, token: Token) -> str:
        """The context for what a run of this token calls."""
        span = node_span(of.execution, token_text(plan, token.node, token.path))
        return TraceContext(of.context.trace, span, of.context.sampled).header()

    def node_finished(
        self,
        of: Traced,
        plan: Plan,
        tokens: Sequence[Token],
        decisions: Sequence[Decision],
        moments: Sequence[int],
        worker: str,
    ) -> None:
        """Nodes have run here. `moments`: before the first and behind each, by the monotonic clock in ns."""
        if not of.context.sampled:
            return
        offset = time.time_ns() - time.perf_counter_ns()
        for number, (token, decision) in enumerate(zip(tokens, decisions, strict=True)):
            if decision.fact is not None:
                began, ended = moments[number] + offset, moments[number + 1] + offset
                self._node(of, plan, token, decision.fact, began, ended, worker)

    def outcome_found(self, of: Traced, plan: Plan, token: Token, fact: TokenFact, worker: str) -> None:
        """A row is there that somebody else wrote, who may have died over it."""
        if of.context.sampled:
            began = getattr(fact, "began", 0) or fact.at
            self._node(of, plan, token, fact, began * MILLI, fact.at * MILLI, worker)

    def finished(self, of: Traced, end: ExecutionEnded) -> None:
        """An execution has ended."""
        if not of.context.sampled:
            return
        self._sink(
            Span(
                trace=of.context.trace,
                id=execution_span(of.execution),
                parent=of.context.span,
                name=of.workflow,
                began=of.at * MILLI,
                ended=max(end.at, of.at) * MILLI,
                attributes={
                    "rune.execution": of.execution,
                    "rune.workflow": of.workflow,
                    "rune.status": end.status,
                },
                error=_said(end.error) if end.status in ("failed", "halted") else None,
            )
        )

    def _node(
        self, of: Traced, plan: Plan, token: Token, fact: TokenFact, began: int, ended: int, worker: str
    ) -> None:
        name = token_text(plan, token.node, token.path)
        which, status, failure = _kind(fact)
        if not status:
            return
        around, *_ = spans = [
            execution_span(of.execution) if each is None else node_span(of.execution, token_text(plan, *each))
            for each in senders(plan, token) or [None]
        ]
        links = spans[:MAX_LINKS] if len(spans) > 1 else []
        if token.resumed:
            links.append(node_span(of.execution, name, "suspended", str(token.attempt)))
        self._sink(
            Span(
                trace=of.context.trace,
                id=node_span(of.execution, name, *which),
                parent=around,
                name=plan.ids[token.node],
                began=began,
                ended=max(ended, began),
                attributes={
                    "rune.execution": of.execution,
                    "rune.workflow": of.workflow,
                    "rune.node": plan.ids[token.node],
                    "rune.node_type": plan.nodes[token.node].type.name,
                    "rune.lineage": path_text(token.path, plan.ids),
                    "rune.attempt": token.attempt,
                    "rune.status": status,
                    "rune.worker": worker,
                },
                links=tuple(links),
                error=None if failure is None else _said(failure),
            )
        )


def _kind(fact: TokenFact) -> tuple[tuple[str, ...], str, Error | None]:
    """What sets a span apart from that of the token's end, how it ended, and why it failed. No status: nothing ran."""
    if type(fact) is NodeResult:
        ran = fact.status in ("ok", "failed")
        return (), fact.status if ran else "", fact.failure if fact.status == "failed" else None
    if type(fact) is AttemptFailed:
        return ("attempt", str(fact.attempt)), "retried", fact.failure
    if type(fact) is NodeSuspended:
        return ("suspended", str(fact.attempt)), "suspended", None
    return (), "", None


def _said(error: Error | None) -> str:
    return "" if error is None else f"{error.code}: {error.message}"
