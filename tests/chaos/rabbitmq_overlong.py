"""A node that takes longer than the broker waits for an acknowledgement: it must be run once, and complete."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.chaos.stand import Stand, pause
from tests.support.paths import ROOT

TIMEOUT = 75.0  # s that the broker waits; a worker lets go of what it holds after 60
CONFIG = f"consumer_timeout = {int(TIMEOUT * 1000)}\n"
LASTS = 150.0  # s: the broker looks once a minute
PATIENCE = 600.0


class Slow:
    """A server that takes its time, and counts who calls."""

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


def _rune(stand: Stand, *arguments: str) -> Any:
    command = [sys.executable, "-m", "rune", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=stand.fleet.environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def overlong(stand: Stand, number: int) -> None:
    """Raises what is wrong."""
    slow = Slow(LASTS)
    call = {"id": "call", "type": "http", "parameters": {"url": slow.url, "timeout": LASTS + 60}}
    document = {
        "id": f"overlong-{number}",
        "nodes": [{"id": "start", "type": "manual"}, call],
        "edges": [{"src": "start", "dst": "call"}],
    }
    path = stand.folder / f"overlong-{number}.json"
    path.write_text(json.dumps(document))
    with slow.running():
        _rune(stand, "deploy", str(path))
        execution = _rune(stand, "start", f"overlong-{number}")["execution_id"]
        stand.wait_for(
            lambda: _rune(stand, "show", execution)["completed_at"] is not None,
            f"overlong node {number} has not ended",
            PATIENCE,
        )
    status = _rune(stand, "show", execution)["status"]
    assert (status, slow.calls) == ("completed", 1), f"overlong node {number}: {status}, {slow.calls} calls"
    said = [each.said() for each in stand.fleet.processes if "PRECONDITION_FAILED" in each.said()]
    assert not said, f"overlong node {number}: the broker closed a channel"
