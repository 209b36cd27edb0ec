"""Prefect: flows and tasks in one process, recorded by a local Prefect server with its SQLite database."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import CHAIN_STEPS, arguments, measure_chains, measure_fan, measure_latency, quiet

PORT = 47_213
STARTUP_S = 120.0


def start_server(folder: str) -> subprocess.Popen[bytes]:
    """Start a Prefect server and wait until it answers."""
    os.environ.update(
        PREFECT_HOME=folder,
        PREFECT_API_URL=f"http://127.0.0.1:{PORT}/api",
        PREFECT_LOGGING_LEVEL="CRITICAL",
        PREFECT_LOGGING_TO_API_ENABLED="false",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(PORT)],
        env=quiet(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + STARTUP_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/health", timeout=2).close()
            return server
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with {server.returncode}") from None
            if time.monotonic() > until:
                raise RuntimeError(f"the server did not answer within {STARTUP_S:.0f} s") from None
            time.sleep(0.2)


def main() -> None:
    given = arguments()
    server = start_server(given.folder)
    try:
        from prefect import flow, task  # noqa: PLC0415 - reads the settings of the server on import

        @task
        def step(value: int) -> int:
            return value + 1

        @flow
        def steps_of(start: int, steps: int) -> int:
            value = start
            for _ in range(steps):
                value = step(value)
            return value

        @flow
        def fan(items: int) -> int:
            return sum(step.map(list(range(items))).result())

        measure_latency(lambda steps: steps_of(0, steps), 1, given.samples)
        measure_latency(lambda steps: steps_of(0, steps), 3, given.samples)
        measure_chains(lambda start: steps_of(start, CHAIN_STEPS), given.chains)
        measure_fan(fan, given.items)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
