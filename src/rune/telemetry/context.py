"""Trace contexts: ids that follow from what they name, so nothing but the start has to be carried.

The trace is that of whoever started the execution, or one of its own. A span is named by its execution and its token:
whoever exports it again exports the same one.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from hashlib import blake2b

import msgspec

from rune.core.lineage import Path, parent, path_text
from rune.core.plan import Plan
from rune.core.token import Token

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
