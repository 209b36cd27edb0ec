"""Export: spans to an OTLP collector over HTTP, in batches, from a thread of its own."""

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
TIMEOUT_S = 5.0  # s that the last spans get at a stop


class OtlpExporter:
    """A sink for spans. One that cannot be delivered is dropped: nobody waits for a collector."""

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
        """Send what is left."""
        # It goes on trying for half a minute where nobody answers; what stops must not wait that long.
        sending = threading.Thread(target=self._processor.shutdown, daemon=True)
        sending.start()
        sending.join(TIMEOUT_S)
