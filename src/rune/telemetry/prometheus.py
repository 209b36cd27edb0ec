"""Readings: how the stores stood a moment ago, whoever looks.

Metrics: the numbers of a meter and of the stores as samples for Prometheus, made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from rune.telemetry.counters import RETRIED, Counters, Histogram


class QueueStats(msgspec.Struct, frozen=True):
    """One queue."""

    queue: str
    waiting: int
    held: int | None
    age: float | None


class StoreStatsSnapshot(msgspec.Struct, kw_only=True):
    """What is not known is None, and no sample is shown of it."""

    queues: tuple[QueueStats, ...] = ()
    members: dict[str, int] = {}  # by role
    dead_letters: int | None = None
    outbox_rows: int | None = None
    outbox_lag: float | None = None
    timer_lag: float | None = None
    rebuilds: int = 0
    busy: int = 0
    slots: int = 0
    errors: int = 0  # questions that had no answer


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
VERDICTS = ("run", "done", "held", "void", "parked", "cancelled")
STATUSES = ("completed", "failed", "halted", "cancelled")
TIMERS = ("wait", "retry", "join", "finish", "deadline")


class PrometheusMetrics:
    """A registry of one process."""

    def __init__(self, meter: Counters, version: str, roles: Iterable[str]) -> None:
        self._meter = meter
        self._version = version
        self._roles = sorted(roles)
        self._readings = StoreStatsSnapshot()
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    def text(self, readings: StoreStatsSnapshot) -> bytes:
        """Everything, as Prometheus reads it."""
        self._readings = readings
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families. Each is there from the start, with nothing in it where nothing has happened."""
        yield self._about()
        yield from self._executions()
        yield from self._nodes()
        yield from self._faults()
        yield from self._stores(self._readings)

    def _about(self) -> Metric:
        made = GaugeMetricFamily("rune_info", "What runs here, always 1.", labels=("version", "roles"))
        made.add_metric((self._version, ",".join(self._roles)), 1)
        return made

    def _executions(self) -> Iterator[Metric]:
        meter = self._meter
        yield _count("rune_starts_accepted", "Executions that this process accepted.", meter.starts)
        yield _counts(
            "rune_executions_ended",
            "Executions whose terminal row this process wrote.",
            "status",
            meter.ended,
            STATUSES,
        )
        yield _spreads(
            "rune_execution_duration_seconds",
            "From the start of an execution to its end.",
            ("status",),
            {(status,): spread for status, spread in meter.executions.items()},
        )

    def _nodes(self) -> Iterator[Metric]:
        meter = self._meter
        yield _spreads(
            "rune_node_duration_seconds",
            "Runs of nodes whose row this process wrote.",
            ("type", "status"),
            {key: spread for key, spread in meter.runs.items() if spread.count},
        )
        retried = {kind: spread.count for (kind, status), spread in meter.runs.items() if status == RETRIED}
        yield _counts("rune_retries", "Runs that failed and are followed by another.", "type", retried)
        yield _spreads(
            "rune_join_wait_seconds",
            "From the first arrival at a join to its opening.",
            (),
            {(): meter.joins},
        )
        yield _counts(
            "rune_deliveries",
            "Hints that were taken from a queue, by what the state said of their token.",
            "verdict",
            meter.deliveries,
            VERDICTS,
        )

    def _faults(self) -> Iterator[Metric]:
        meter = self._meter
        twins = "Second results for a token that had one: they were dropped, and the stored one was used."
        yield _count("rune_twins_refused", twins, meter.twins)
        folds = "States that were made anew from the journal."
        yield _count("rune_folds", folds, self._readings.rebuilds)
        letters = "Executions that this process gave up on."
        yield _counts("rune_dead_letters", letters, "code", meter.letters, ("DEAD_LETTERED", "WORKER_CRASH"))
        yield _spreads(
            "rune_timer_lag_seconds",
            "How late timers were moved on.",
            ("kind",),
            {(kind,): meter.timers.get(kind, Histogram()) for kind in TIMERS},
        )

    def _stores(self, seen: StoreStatsSnapshot) -> Iterator[Metric]:
        """How things stand as a whole; every process that is asked says the same."""
        queues = {each.queue: each for each in seen.queues}
        waiting = {name: each.waiting for name, each in queues.items()}
        yield _gauges("rune_queue_depth", "Hints that wait for a free slot.", "queue", waiting)
        held = {name: each.held for name, each in queues.items()}
        yield _gauges("rune_queue_held", "Hints that are in a worker's hands.", "queue", held)
        ages = {name: each.age for name, each in queues.items()}
        yield _gauges(
            "rune_queue_age_seconds", "How long the oldest hint that waits has waited.", "queue", ages
        )
        yield _gauges("rune_live_members", "Processes that were seen of late.", "role", seen.members)
        yield _gauge("rune_dead_letters_open", "Dead letters that nobody has settled.", seen.dead_letters)
        yield _gauge("rune_outbox_rows", "Rows in the outbox.", seen.outbox_rows)
        yield _gauge(
            "rune_outbox_lag_seconds", "How long the oldest row is overdue for a relay.", seen.outbox_lag
        )
        yield _gauge(
            "rune_timer_overdue_seconds", "How long the nearest timer is overdue now.", seen.timer_lag
        )
        yield _gauge("rune_slots_busy", "Nodes under way in this process.", seen.busy)
        yield _gauge("rune_slots", "Nodes that may be under way at once in this process.", seen.slots)
        yield _count("rune_scrape_troubles", "Stores that did not answer a scrape.", seen.errors)


def _count(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _counts(
    name: str, about: str, label: str, values: Mapping[str, int], known: Iterable[str] = ()
) -> Metric:
    made = CounterMetricFamily(name, about, labels=(label,))
    for each in dict.fromkeys((*known, *values)):
        made.add_metric((each,), values.get(each, 0))
    return made


def _gauge(name: str, about: str, value: float | None) -> Metric:
    made = GaugeMetricFamily(name, about)
    if value is not None:
        made.add_metric((), value)
    return made


def _gauges(name: str, about: str, label: str, values: Mapping[str, float | None]) -> Metric:
    made = GaugeMetricFamily(name, about, labels=(label,))
    for each, value in values.items():
        if value is not None:
            made.add_metric((each,), value)
    return made


def _spreads(name: str, about: str, labels: tuple[str, ...], spreads: Mapping[Any, Histogram]) -> Metric:
    made = HistogramMetricFamily(name, about, labels=labels)
    for values, spread in spreads.items():
        buckets = [(str(edge), count) for edge, count in spread.buckets()]
        made.add_metric(values, [*buckets, ("+Inf", spread.count)], sum_value=spread.seconds)
    return made
