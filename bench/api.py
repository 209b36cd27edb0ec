"""Measures starts over HTTP, compared with an empty handler, and the latency of live events to many subscribers.

    python bench/api.py [--seconds 5] [--connections 32] [--watchers 200] [--events 2000]

Server and client are separate processes. A start is counted when it was acknowledged, which means it is durable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

# This folder contains a file with the name of a standard library module.
sys.path[0] = str(Path(__file__).resolve().parents[1] / "src")

import uvloop  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402
from starlette.routing import Route  # noqa: E402

DOCUMENT: dict[str, Any] = {
    "id": "bench",
    "nodes": [{"id": "in", "type": "input"}, {"id": "n", "type": "noop"}],
}
DOCUMENT["edges"] = [{"src": "in", "dst": "n"}]
# Number of one-second waits per item; each publishes two events.
LAPS = 30

WATCHED = {
    "id": "watched",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "apart", "type": "wait", "parameters": {"amount": "{{ $item }}", "unit": "seconds"}},
        *(
            {"id": f"n{n}", "type": "wait", "parameters": {"amount": 1, "unit": "seconds"}}
            for n in range(LAPS)
        ),
    ],
    "edges": [
        {"src": "in", "dst": "s"},
        {"src": "s", "dst": "apart"},
        {"src": "apart", "dst": "n0"},
        *({"src": f"n{n}", "dst": f"n{n + 1}"} for n in range(LAPS - 1)),
    ],
}
AT = re.compile(rb'"at":"([^"]+)"')


async def server(home: str) -> None:
    """Serve the API over an embedded engine, with one additional empty route."""
    import rune.bootstrap.http  # noqa: PLC0415 - not needed by the client process
    from rune.bootstrap import open_reader, running_engine  # noqa: PLC0415
    from rune.server import app as application  # noqa: PLC0415
    from rune.server.responses import Accepted  # noqa: PLC0415
    from rune.settings import Settings  # noqa: PLC0415

    make_app = application.make_app

    def with_empty(*arguments: Any) -> Any:
        app = make_app(*arguments)

        async def empty(request: Request) -> Response:
            await request.body()
            return Accepted({"execution_id": "x" * 26, "replayed": False})

        app.router.routes.insert(0, Route("/api/v1/empty", empty, methods=["POST"]))
        return app

    setattr(rune.bootstrap.http, "make_app", with_empty)  # noqa: B010 - `serve` looks it up there
    settings = Settings(home=home)
    async with running_engine(settings) as engine, open_reader(settings) as opened:
        await engine.services.workflows.deploy(json.dumps(DOCUMENT).encode())
        await engine.services.workflows.deploy(json.dumps(WATCHED).encode())
        await rune.bootstrap.http.serve(
            settings, engine, opened, "127.0.0.1", 0, ready=lambda url: print(url, flush=True)
        )


def request(path: str, body: bytes) -> bytes:
    return (
        b"POST /api/v1%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(size)


async def rate(port: int, path: str, body: bytes, seconds: float, connections: int) -> tuple[float, float]:
    """Return the responses per second and the 99th percentile of their times in ms."""
    until = time.perf_counter() + seconds
    times: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < until:
            writer.write(request(path, body))
            status, body_text = await read_response(reader)
            if status != 202:
                raise RuntimeError(f"{status}: {body_text.decode()}")
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return len(times) / (time.perf_counter() - began), statistics.quantiles(times, n=100)[98] * 1_000


async def watched(
    port: int, pid: int, watchers: int, per_second: int, seconds: float
) -> tuple[float, float, float, float]:
    """Measure live events of items that wait, spread over time to publish `per_second` events.

    Return the p99 and p50 latency in ms from the decision to a subscriber (by the oldest event of a chunk), the events
    per second received by each subscriber, and the CPU share of the server.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    items = [round(at * 2 / per_second, 4) for at in range(per_second // 2)]
    writer.write(request("/workflows/watched/executions", json.dumps({"input": {"items": items}}).encode()))
    execution = json.loads((await read_response(reader))[1])["execution_id"]
    late: list[float] = []
    received = 0
    # By then all subscribers have received earlier events, and the items are spread out.
    begins = time.time() + 4 + watchers / 100
    until = begins + seconds

    class Subscriber(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            head = f"GET /api/v1/executions/{execution}/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
            transport.write(head.encode())

        def data_received(self, data: bytes) -> None:
            nonlocal received
            now = time.time()
            if begins < now < until and (found := AT.search(data)) is not None:
                received += data.count(b"\nid: ")
                late.append(now - datetime.fromisoformat(found[1].decode()).timestamp())

    loop = asyncio.get_running_loop()
    transports = [(await loop.create_connection(Subscriber, "127.0.0.1", port))[0] for _ in range(watchers)]
    await asyncio.sleep(begins - time.time())
    before = cpu_seconds(pid)
    await asyncio.sleep(until - time.time())
    share = (cpu_seconds(pid) - before) / seconds
    for each in transports:
        each.close()
    writer.close()
    cuts = statistics.quantiles(late, n=100)
    return cuts[98] * 1_000, cuts[49] * 1_000, received / watchers / seconds, share


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(home: str | None = None) -> Iterator[tuple[int, int]]:
    """Run a server over a folder, by default an empty one; yield its port and process id."""
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as empty:
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", home or empty], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rsplit(":", 1)[1]), process.pid
        finally:
            process.kill()
            process.wait()


async def main(options: argparse.Namespace) -> None:
    body = b'{"input": {"name": "World", "n": 7}}'
    with started() as (port, pid):
        for path in ("/empty", "/workflows/bench/executions"):
            await rate(port, path, body, 1.0, options.connections)
        limit, _ = await rate(port, "/empty", body, options.seconds, options.connections)
        before = cpu_seconds(pid)
        starts, slow = await rate(
            port, "/workflows/bench/executions", body, options.seconds, options.connections
        )
        cost = (cpu_seconds(pid) - before) / (starts * options.seconds) * 1e6
        print(
            f"starts: {starts:,.0f}/s accepted and durable, p99 {slow:.0f} ms; empty handler: {limit:,.0f}/s"
            f" ({starts / limit:.0%}); {cost:.0f} µs of server CPU per execution, including its run"
        )
    if options.watchers:
        with started() as (port, pid):
            p99, half, each, share = await watched(
                port, pid, options.watchers, options.events, options.seconds
            )
            print(
                f"live: {each:,.0f} events/s to each of {options.watchers} subscribers, p99 {p99:.0f} ms and"
                f" p50 {half:.0f} ms after the decision; {share:.0%} of a CPU core"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="HOME")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--events", type=int, default=2_000)
    given = parser.parse_args()
    if given.serve:
        import rune.bootstrap.http

        with asyncio.Runner(loop_factory=rune.bootstrap.http.loop_factory()) as runner:
            runner.run(server(given.serve))
    else:
        # uvloop, so that the client is not the bottleneck.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(given))
