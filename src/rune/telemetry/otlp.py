"""Exports spans to an OTLP collector over HTTP, in batches, from a background thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from rune.telemetry.tracing import Span

FLAGS = TraceFlags(TraceFlags.SAMPLED)
SHUTDOWN_TIMEOUT_S = 5.0


class OtlpExporter:
    """A span sink. Spans that cannot be delivered are dropped, so that the collector never blocks the engine."""

    def __init__(self, endpoint: str, about: Mapping[str, str]) -> None:
        self._resource = Resource.create({"service.name": "rune", **about})
        self._scope = InstrumentationScope("rune", about.get("service.version", ""))
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))

    def __call__(self, span: Span) -> None:
        context = partial(SpanContext, span.trace, is_remote=False, trace_flags=FLAGS)
        status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=context(span.id),
                parent=context(span.parent) if span.parent else None,
                resource=self._resource,
                attributes=span.attributes,
                links=[Link(context(each)) for each in span.links],
                kind=SpanKind.INTERNAL,
                status=status,
                start_time=span.began,
                end_time=span.ended,
                instrumentation_scope=self._scope,
            )
        )

    def close(self) -> None:
        """Send the remaining spans, within a time limit."""
        # The processor retries for half a minute if the collector does not respond; shutdown must not wait that long.
        sending = threading.Thread(target=self._processor.shutdown, daemon=True)
        sending.start()
        sending.join(SHUTDOWN_TIMEOUT_S)
