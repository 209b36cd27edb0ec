"""Collector that receives spans over OTLP/HTTP and stores them."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

TIMEOUT_S = 120.0


class Span(msgspec.Struct, frozen=True):
    """One exported span."""

    trace: str
    id: str
    parent: str
    name: str
    links: tuple[str, ...]
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Stores spans by id; a repeated span replaces the first."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        self.calls: list[dict[str, str]] = []  # headers of requests other than exports
        self.raw: list[bytes] = []  # body of every export
        self.url = ""

    def receive(self, body: bytes) -> None:
        self.raw.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    values = {each.key: _value(each.value) for each in span.attributes}
                    self.spans[span.span_id.hex()] = Span(
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.name,
                        tuple(each.span_id.hex() for each in span.links),
                        span.status.code == 2,
                        values,
                    )

    def of(self, execution: str) -> list[Span]:
        """Return the spans of an execution."""
        return [each for each in self.spans.values() if each.attributes["rune.execution"] == execution]

    def wait(self, execution: str, count: int) -> list[Span]:
        """Wait for this many spans of an execution; return them."""
        pause, until = threading.Event(), time.monotonic() + TIMEOUT_S
        while len(found := self.of(execution)) < count:
            assert time.monotonic() < until, f"{len(found)} of {count}: {sorted(each.name for each in found)}"
            pause.wait(0.02)
        return found


def _value(value: Any) -> Any:
    return value.int_value if value.HasField("int_value") else value.string_value


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector during the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.receive(
                gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            )
            self._answer(ExportTraceServiceResponse().SerializeToString())

        def do_GET(self) -> None:
            collector.calls.append({name.lower(): value for name, value in self.headers.items()})
            self._answer(b"{}")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
