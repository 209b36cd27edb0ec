"""The `now` events of a stream: which nodes run at the moment, and the lines that they log.

They have no number and are not repeated: each replaces the one before, and the numbered events are the complete
record.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from rune.api.live import LineView, NowView, RunningView
from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, NodeSuspended
from rune.core.execution.token import Path
from rune.ports.clock import moment
from rune.ports.processes import LoggedLine, RunningNode
from rune.runtime.queries.history import History

MAX_NOW_EVENTS = 32  # that a slow subscriber may be behind
MAX_ENDED_RUNS = 1_000

_ENCODER = msgspec.json.Encoder()


class NowEvents:
    """The newest `now` events of one execution, encoded once for all subscribers."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._events: deque[tuple[int, bytes]] = deque(maxlen=MAX_NOW_EVENTS)
        self._ended: OrderedDict[tuple[int, Path], int] = OrderedDict()
        self.shown: Sequence[RunningNode] = ()
        self.last = 0

    def add_fact(self, fact: Fact) -> None:
        """Note the attempts that have ended: a report that was sent before may still list them."""
        if isinstance(fact, NodeResult | AttemptFailed | NodeSuspended):
            attempt = fact.attempt - 1 if isinstance(fact, NodeSuspended) else fact.attempt
            self._ended[(fact.node, fact.path)] = attempt
            if len(self._ended) > MAX_ENDED_RUNS:
                self._ended.popitem(last=False)

    def add(self, running: Sequence[RunningNode], lines: Sequence[LoggedLine]) -> None:
        """Add an event."""
        open_runs = [each for each in running if self._ended.get((each.node, each.path), 0) < each.attempt]
        if open_runs == self.shown and not lines:
            return
        self.shown = open_runs
        ids, lineage = self._history.plan.ids, self._history.lineage
        view = NowView(
            at=moment(time.time_ns() // 1_000_000),
            running=[
                RunningView(
                    node_id=ids[each.node],
                    lineage=lineage(each.path),
                    attempt=each.attempt,
                    since=moment(each.since),
                    worker=each.worker,
                    progress=each.progress or None,
                )
                for each in open_runs
            ],
            lines=[
                LineView(
                    node_id=ids[each.node],
                    lineage=lineage(each.path),
                    attempt=each.attempt,
                    at=moment(each.at),
                    level=each.level,
                    message=each.message,
                )
                for each in lines
            ],
        )
        self.last += 1
        self._events.append((self.last, _ENCODER.encode(view)))

    def after(self, number: int) -> list[bytes]:
        """Return the events after a number that are still kept; to a new subscriber only the newest."""
        if number == 0:
            return [self._events[-1][1]] if self._events else []
        return [data for at, data in self._events if at > number]


def sse_now(data: bytes) -> bytes:
    """Format an event as a server-sent event without an id."""
    return b"event: now\ndata: %b\n\n" % data
