"""Tracing: one span per execution and per node run, created from what the journal has recorded.

The trace id comes from the `traceparent` of the start, or is derived from the execution id. Span ids are derived from
the execution and token, so only the start context is stored, and a span exported twice has the same id.
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
MAX_LINKS = 128
NS_PER_MS = 1_000_000
TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
ARRIVING: ContextVar[str] = ContextVar("rune_traceparent", default="")
"""The `traceparent` header of the current request."""


class TraceContext(msgspec.Struct, frozen=True):
    """A trace id, its parent span (0: none) and the sampling decision."""

    trace: int
    span: int
    sampled: bool = True

    def header(self) -> str:
        """Return the W3C `traceparent` header."""
        return f"00-{self.trace:032x}-{self.span:016x}-{SAMPLED if self.sampled else 0:02x}"


def read_header(text: str) -> TraceContext | None:
    """Parse a `traceparent` header; return None if it is not valid."""
    found = TRACEPARENT.fullmatch(text.strip().lower())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    return TraceContext(trace, span, bool(int(found[4], 16) & SAMPLED)) if trace and span else None


def _hash_id(size: int, *parts: str) -> int:
    data = "\x1f".join(parts).encode()
    return int.from_bytes(blake2b(data, digest_size=size).digest(), "big") or 1


def trace_of(execution: str, started_with: str, share: float = 1.0) -> TraceContext:
    """Return the trace context of an execution.

    Without a context from the start, sampling is decided by the trace id, so that all processes decide the same.
    """
    given = read_header(started_with) if started_with else None
    if given is not None:
        return given
    trace = _hash_id(16, "trace", execution)
    return TraceContext(trace, 0, (trace & (2**64 - 1)) < share * 2**64)


def execution_span(execution: str) -> int:
    """Return the span id of an execution."""
    return _hash_id(8, execution)


def node_span(execution: str, name: str, *more: str) -> int:
    """Return the span id of the run that completed a token, or with `more` of an earlier run."""
    return _hash_id(8, execution, name, *more)


def token_text(plan: Plan, node: int, path: Path) -> str:
    """Return the name of a token: node id and lineage."""
    return f"{plan.ids[node]}@{path_text(path, plan.ids)}"


def sender(plan: Plan, edge: int, path: Path) -> tuple[int, Path] | None:
    """Return the node and path that sent over an edge; None for the start, because triggers do not run."""
    source = plan.src[edge]
    if source in plan.triggers:
        return None
    from_split = plan.nodes[source].fans_out and plan.nodes[plan.dst[edge]].depth > plan.nodes[source].depth
    return source, parent(path) if from_split else path


def senders(plan: Plan, token: Token) -> list[tuple[int, Path] | None]:
    """Return the senders of a token: all live arrivals of a join, the split of an aggregator."""
    node = plan.nodes[token.node]
    if node.joins_items:
        return [(node.split_of, token.path)]
    if token.arrived:
        return [sender(plan, each.edge, token.path) for each in token.arrived]
    return [sender(plan, edge, token.path) for edge in node.in_edges[:1]]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A finished span. `parent` is 0 for a root span."""

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
    """The attributes of an execution that its spans share."""

    execution: str
    workflow: str
    at: int
    context: TraceContext


class Sink(Protocol):
    """Receives finished spans."""

    def __call__(self, span: Span) -> None:
        """Accept a span without waiting for its delivery."""

    def close(self) -> None:
        """Send the remaining spans."""


class Tracer:
    """Creates spans and passes them to a sink. Without tracing no tracer exists."""

    def __init__(self, sink: Sink, share: float = 1.0) -> None:
        self._sink = sink
        self._share = share

    def close(self) -> None:
        """Flush the sink; this takes up to its timeout if the collector does not respond."""
        self._sink.close()

    def arriving(self) -> str:
        """Return the trace context of the current request, to be stored with the start."""
        text = ARRIVING.get()
        found = read_header(text) if text else None
        return "" if found is None else found.header()

    def traced(self, execution: str, workflow: str, at: int, started_with: str) -> Traced:
        """Return the attributes that the spans of an execution share."""
        return Traced(execution, workflow, at, trace_of(execution, started_with, self._share))

    def outgoing(self, of: Traced, plan: Plan, token: Token) -> str:
        """Return the trace context for outgoing calls of a node run."""
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
        """Export node runs. `moments` are monotonic times in ns before the first run and after each."""
        if not of.context.sampled:
            return
        offset = time.time_ns() - time.perf_counter_ns()
        for number, (token, decision) in enumerate(zip(tokens, decisions, strict=True)):
            if decision.fact is not None:
                began, ended = moments[number] + offset, moments[number + 1] + offset
                self._node(of, plan, token, decision.fact, began, ended, worker)

    def outcome_found(self, of: Traced, plan: Plan, token: Token, fact: TokenFact, worker: str) -> None:
        """Export a run recorded by another process, which may have crashed before exporting it."""
        if of.context.sampled:
            began = getattr(fact, "began", 0) or fact.at
            self._node(of, plan, token, fact, began * NS_PER_MS, fact.at * NS_PER_MS, worker)

    def finished(self, of: Traced, end: ExecutionEnded) -> None:
        """Export the span of an ended execution."""
        if not of.context.sampled:
            return
        self._sink(
            Span(
                trace=of.context.trace,
                id=execution_span(of.execution),
                parent=of.context.span,
                name=of.workflow,
                began=of.at * NS_PER_MS,
                ended=max(end.at, of.at) * NS_PER_MS,
                attributes={
                    "rune.execution": of.execution,
                    "rune.workflow": of.workflow,
                    "rune.status": end.status,
                },
                error=_error_text(end.error) if end.status in ("failed", "halted") else None,
            )
        )

    def _node(
        self, of: Traced, plan: Plan, token: Token, fact: TokenFact, began: int, ended: int, worker: str
    ) -> None:
        name = token_text(plan, token.node, token.path)
        suffix, status, failure = _span_kind(fact)
        if not status:
            return
        parent_span, *_ = spans = [
            execution_span(of.execution) if each is None else node_span(of.execution, token_text(plan, *each))
            for each in senders(plan, token) or [None]
        ]
        links = spans[:MAX_LINKS] if len(spans) > 1 else []
        if token.resumed:
            links.append(node_span(of.execution, name, "suspended", str(token.attempt)))
        self._sink(
            Span(
                trace=of.context.trace,
                id=node_span(of.execution, name, *suffix),
                parent=parent_span,
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
                error=None if failure is None else _error_text(failure),
            )
        )


def _span_kind(fact: TokenFact) -> tuple[tuple[str, ...], str, Error | None]:
    """Return the id suffix of a span, its status and its error. An empty status means that nothing ran."""
    if type(fact) is NodeResult:
        ran = fact.status in ("ok", "failed")
        return (), fact.status if ran else "", fact.failure if fact.status == "failed" else None
    if type(fact) is AttemptFailed:
        return ("attempt", str(fact.attempt)), "retried", fact.failure
    if type(fact) is NodeSuspended:
        return ("suspended", str(fact.attempt)), "suspended", None
    return (), "", None


def _error_text(error: Error | None) -> str:
    return "" if error is None else f"{error.code}: {error.message}"
