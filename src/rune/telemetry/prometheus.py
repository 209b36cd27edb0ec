"""Prometheus metrics: converts the counters of a process and a snapshot of the stores to samples at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from rune.ports.journal import ENGINE_ERRORS
from rune.ports.queries import outcome_of
from rune.ports.retention import ENDED
from rune.telemetry.counters import RETRIED, Counters, Histogram, StoreStatsSnapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
VERDICTS = ("run", "done", "held", "void", "parked", "cancelled")
TIMERS = ("wait", "retry", "join", "finish", "deadline", "late")


class PrometheusMetrics:
    """The metrics registry of one process."""

    def __init__(self, counters: Counters, version: str, roles: Iterable[str]) -> None:
        self._counters = counters
        self._version = version
        self._roles = sorted(roles)
        self._snapshot = StoreStatsSnapshot()
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    def text(self, snapshot: StoreStatsSnapshot) -> bytes:
        """Return all samples in the Prometheus text format."""
        self._snapshot = snapshot
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; each is exported from the start, also without samples."""
        yield self._about()
        yield from self._executions()
        yield from self._nodes()
        yield from self._faults()
        yield from self._stores(self._snapshot)

    def _about(self) -> Metric:
        family = GaugeMetricFamily(
            "rune_info", "Version and roles of this process; always 1.", labels=("version", "roles")
        )
        family.add_metric((self._version, ",".join(self._roles)), 1)
        return family

    def _executions(self) -> Iterator[Metric]:
        counters = self._counters
        yield _counter("rune_starts_accepted", "Executions accepted by this process.", counters.starts)
        ended = CounterMetricFamily(
            "rune_executions_ended",
            "Executions whose end was recorded by this process. The outcome of halted ones is `failed`.",
            labels=("status", "outcome"),
        )
        for status in dict.fromkeys((*ENDED, *counters.ended)):
            ended.add_metric((status, outcome_of(status)), counters.ended.get(status, 0))
        yield ended
        failed = "Items of splits that failed, in executions whose end was recorded by this process."
        yield _counter("rune_items_failed", failed, counters.failed_items)
        yield _histograms(
            "rune_execution_duration_seconds",
            "Time from the start of an execution to its end.",
            ("status", "outcome"),
            {(status, outcome_of(status)): histogram for status, histogram in counters.executions.items()},
        )

    def _nodes(self) -> Iterator[Metric]:
        counters = self._counters
        yield _histograms(
            "rune_node_duration_seconds",
            "Node runs whose result was recorded by this process.",
            ("type", "status"),
            {key: histogram for key, histogram in counters.runs.items() if histogram.count},
        )
        retried = {
            kind: histogram.count for (kind, status), histogram in counters.runs.items() if status == RETRIED
        }
        yield _counters("rune_retries", "Failed node runs that are retried.", "type", retried)
        yield _histograms(
            "rune_join_wait_seconds",
            "Time from the first arrival at a join to its opening.",
            (),
            {(): counters.joins},
        )
        yield _counters(
            "rune_deliveries",
            "Messages taken from a queue, by the verdict of the state on their token.",
            "verdict",
            counters.deliveries,
            VERDICTS,
        )

        sent = "Tokens that a broker has confirmed, from this process; those that were sent again included."
        yield _counter("rune_tokens_sent", sent, counters.tokens_sent)
        resent = "Tokens that this process sent again, because no worker had claimed them and their message was lost."
        yield _counter("rune_tokens_resent", resent, counters.tokens_resent)

    def _faults(self) -> Iterator[Metric]:
        counters = self._counters
        duplicates = "Duplicate results of a token that were dropped in favour of the stored one."
        yield _counter("rune_duplicate_results", duplicates, counters.duplicate_results)
        blocks = "Times the event loop of this process was blocked for more than a second."
        yield _counter("rune_loop_blocks", blocks, counters.blocks)
        seconds = "Time the event loop was blocked, in periods of more than a second."
        yield _counter("rune_loop_blocked_seconds", seconds, counters.blocks_seconds)
        jumps = "Jumps of the system clock by more than a second."
        yield _counter("rune_clock_jumps", jumps, counters.clock_jumps)
        folds = "States rebuilt from the journal."
        yield _counter("rune_folds", folds, self._snapshot.rebuilds)
        letters = "Executions dead-lettered by this process."
        yield _counters("rune_dead_letters", letters, "code", counters.letters, tuple(sorted(ENGINE_ERRORS)))
        handlers = (
            "Handlers of executions that this process started, or gave up because they cannot be started."
        )
        yield _counters("rune_handlers", handlers, "result", counters.handlers, ("started", "given_up"))
        yield _histograms(
            "rune_timer_lag_seconds",
            "Delay of fired timers.",
            ("kind",),
            {(kind,): counters.timers.get(kind, Histogram()) for kind in TIMERS},
        )

    def _stores(self, snapshot: StoreStatsSnapshot) -> Iterator[Metric]:
        """Yield the metrics of the shared stores; every process exports the same values."""
        queues = {each.queue: each for each in snapshot.queues}
        waiting = {name: each.waiting for name, each in queues.items()}
        yield _gauges("rune_queue_depth", "Messages waiting for a free slot.", "queue", waiting)
        held = {name: each.held for name, each in queues.items()}
        yield _gauges(
            "rune_queue_held", "Messages delivered to a worker and not yet acknowledged.", "queue", held
        )
        ages = {name: each.age for name, each in queues.items()}
        yield _gauges("rune_queue_age_seconds", "Age of the oldest waiting message.", "queue", ages)
        yield _gauges("rune_live_members", "Recently active processes.", "role", snapshot.members)
        yield _gauge("rune_dead_letters_open", "Unresolved dead letters.", snapshot.dead_letters)
        yield _gauge(
            "rune_dead_messages",
            "Messages of the queue that no worker could process.",
            snapshot.dead_messages,
        )
        yield _gauge("rune_outbox_rows", "Rows in the outbox.", snapshot.outbox_rows)
        yield _gauge(
            "rune_outbox_lag_seconds",
            "Overdue time of the oldest outbox row.",
            snapshot.outbox_lag,
        )
        yield _gauge("rune_timer_overdue_seconds", "Overdue time of the earliest timer.", snapshot.timer_lag)
        stuck = "Running executions without progress for 15 minutes that wait for no time and no signal."
        yield _gauge("rune_executions_stuck", stuck, snapshot.stuck)
        yield _gauge("rune_slots_busy", "Nodes running in this process.", snapshot.busy)
        yield _gauge(
            "rune_slots", "Maximum number of concurrently running nodes in this process.", snapshot.slots
        )
        yield _counter("rune_scrape_troubles", "Failed store queries during scrapes.", snapshot.errors)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _counters(
    name: str, about: str, label: str, values: Mapping[str, int], known: Iterable[str] = ()
) -> Metric:
    family = CounterMetricFamily(name, about, labels=(label,))
    for each in dict.fromkeys((*known, *values)):
        family.add_metric((each,), values.get(each, 0))
    return family


def _gauge(name: str, about: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, about)
    if value is not None:
        family.add_metric((), value)
    return family


def _gauges(name: str, about: str, label: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=(label,))
    for each, value in values.items():
        if value is not None:
            family.add_metric((each,), value)
    return family


def _histograms(
    name: str, about: str, labels: tuple[str, ...], histograms: Mapping[Any, Histogram]
) -> Metric:
    family = HistogramMetricFamily(name, about, labels=labels)
    for values, histogram in histograms.items():
        buckets = [(str(edge), count) for edge, count in histogram.buckets()]
        family.add_metric(values, [*buckets, ("+Inf", histogram.count)], sum_value=histogram.seconds)
    return family
