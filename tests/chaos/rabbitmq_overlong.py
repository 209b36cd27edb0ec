"""A node that runs longer than the acknowledgement timeout of the broker must run once and complete."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.chaos.breakable_cluster import BreakableCluster, pause
from tests.support.paths import ROOT

ACK_TIMEOUT_S = 75.0  # a worker releases its messages after 60 s
CONFIG = f"consumer_timeout = {int(ACK_TIMEOUT_S * 1000)}\n"
NODE_DURATION_S = 150.0  # the broker checks timeouts once a minute
TIMEOUT_S = 600.0


class SlowServer:
    """An HTTP server with slow responses that counts its calls."""

    def __init__(self, seconds: float) -> None:
        self.calls = 0
        counted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                counted.calls += 1
                pause(seconds)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


def _rune(cluster: BreakableCluster, *arguments: str) -> Any:
    command = [sys.executable, "-m", "rune", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=cluster.fleet.environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def run_overlong_node(cluster: BreakableCluster, number: int) -> None:
    """Run such a node; fail if it does not complete with one call."""
    slow = SlowServer(NODE_DURATION_S)
    call = {"id": "call", "type": "http", "parameters": {"url": slow.url, "timeout": NODE_DURATION_S + 60}}
    document = {
        "id": f"overlong-{number}",
        "nodes": [{"id": "start", "type": "manual"}, call],
        "edges": [{"src": "start", "dst": "call"}],
    }
    path = cluster.folder / f"overlong-{number}.json"
    path.write_text(json.dumps(document))
    with slow.running():
        _rune(cluster, "deploy", str(path))
        execution = _rune(cluster, "start", f"overlong-{number}")["execution_id"]
        cluster.wait_for(
            lambda: _rune(cluster, "show", execution)["completed_at"] is not None,
            f"overlong node {number} has not ended",
            TIMEOUT_S,
        )
    status = _rune(cluster, "show", execution)["status"]
    assert (status, slow.calls) == ("completed", 1), f"overlong node {number}: {status}, {slow.calls} calls"
    closed = [each.output() for each in cluster.fleet.processes if "PRECONDITION_FAILED" in each.output()]
    assert not closed, f"overlong node {number}: the broker closed a channel"
