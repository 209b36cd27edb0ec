"""A spread: how often something took how long, in buckets that double.

The meter: what one process has done so far, as plain numbers. They become samples only when somebody asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rune.core.execution.decision import Decision
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, TokenFact
from rune.core.plan.model import Plan

WIDTH = 64
"""2 ** 63 nanoseconds are three centuries: nothing that is measured lasts longer."""

EDGES = tuple(range(16, 46, 2))
"""The powers of two, in nanoseconds, that are shown: from 66 µs to almost five hours, each four times the last."""


class Histogram:
    """Counts by the number of bits of a duration: to add one is an index and two sums."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * WIDTH
        self.total = 0  # ns

    def add(self, nanos: int) -> None:
        """One more that took so many nanoseconds."""
        nanos = max(nanos, 0)
        self.counts[min(nanos.bit_length(), WIDTH - 1)] += 1
        self.total += nanos

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def seconds(self) -> float:
        """How long all of them took together."""
        return self.total / 1e9

    def buckets(self) -> list[tuple[float, int]]:
        """Upper edges in seconds, and how many were shorter."""
        return [(2**bits / 1e9, sum(self.counts[: bits + 1])) for bits in EDGES]


LETTERS = frozenset({"DEAD_LETTERED", "WORKER_CRASH"})
"""The codes of an end that the engine itself is the reason of."""

OK, RETRIED, SUSPENDED = "ok", "retried", "suspended"
MAX_PLANS = 256
MILLI = 1_000_000  # ns


class Counters:
    """Only ever grows. Nothing in it is shared with another thread."""

    __slots__ = (
        "_plans",
        "deliveries",
        "ended",
        "executions",
        "joins",
        "letters",
        "runs",
        "starts",
        "timers",
        "twins",
    )

    def __init__(self) -> None:
        self.starts = 0
        self.twins = 0
        self.runs: dict[tuple[str, str], Histogram] = {}  # by node type and status
        self._plans: dict[str, list[Histogram]] = {}
        self.deliveries: defaultdict[str, int] = defaultdict(int)  # by what became of them
        self.ended: dict[str, int] = {}  # by status
        self.executions: dict[str, Histogram] = {}  # by status
        self.letters: dict[str, int] = {}  # by code
        self.joins = Histogram()
        self.timers: dict[str, Histogram] = {}  # by kind

    def node_finished(
        self, plan: Plan, decisions: Sequence[Decision], moments: Sequence[int], waited: int | None = None
    ) -> None:
        """Nodes have run whose rows are ours. `moments`: before the first and behind each, in ns. `waited`: how many ms
        the first of them did as a join; one that opens inside of a run has not."""
        spreads = self._plans.get(plan.hash) or self._of(plan)
        before = moments[0]
        for number, decision in enumerate(decisions, 1):
            after = moments[number]
            fact = decision.fact
            if type(fact) is NodeResult and fact.status == "ok":
                spread = spreads[decision.node]
                if fact.arrived:
                    self._opened(0 if number > 1 else waited)
                took = after - before
                spread.counts[took.bit_length()] += 1
                spread.total += took
            elif fact is not None:  # a skip, or more items of a fan-out: no row says that anything ran
                self._ended_otherwise(plan, decision.node, fact, after - before)
                if type(fact) is NodeResult and fact.arrived:
                    self._opened(0 if number > 1 else waited)
            before = after

    def _ended_otherwise(self, plan: Plan, node: int, fact: TokenFact, took: int) -> None:
        status = (
            fact.status if type(fact) is NodeResult else RETRIED if type(fact) is AttemptFailed else SUSPENDED
        )
        self._spread(plan.nodes[node].type.name, status).add(took)

    def _opened(self, waited: int | None) -> None:
        if waited is not None:
            self.joins.add(waited * MILLI)

    def _spread(self, type: str, status: str) -> Histogram:
        return self.runs.setdefault((type, status), Histogram())

    def _of(self, plan: Plan) -> list[Histogram]:
        """Where runs that went well are counted, by node: looked up once a plan, not once a run."""
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        made = self._plans[plan.hash] = [self._spread(node.type.name, OK) for node in plan.nodes]
        return made

    def finished(self, end: ExecutionEnded, lasted: int | None) -> None:
        """A terminal row is ours; after so many ms, where that is known."""
        self.ended[end.status] = self.ended.get(end.status, 0) + 1
        if lasted is not None:
            self.executions.setdefault(end.status, Histogram()).add(lasted * MILLI)
        if end.error is not None and end.error.code in LETTERS:
            self.letters[end.error.code] = self.letters.get(end.error.code, 0) + 1

    def timer_fired(self, kind: str, late: int) -> None:
        """A timer was moved on, so many ms after its time."""
        self.timers.setdefault(kind, Histogram()).add(late * MILLI)
