"""Starts over HTTP, beside the same server with an empty handler; and how long a live event takes to many watchers.

    python bench/api.py [--seconds 5] [--connections 32] [--watchers 200] [--events 2000]

The server is a process of its own and so is the one that asks. A start counts when it was acknowledged: it is on disk.
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

# This folder has a file that is called like a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parents[1] / "src")

import uvloop  # noqa: E402
from fastapi import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402

DOCUMENT = {"id": "bench", "nodes": [{"id": "in", "type": "input"}, {"id": "n", "type": "noop"}]}
DOCUMENT["edges"] = [{"src": "in", "dst": "n"}]  # type: ignore[list-item]
LAPS = 30
"""How often each item waits for a second: each time it tells of two events."""

HEARD = {
    "id": "heard",
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
    """The API over an embedded engine, with one route that does nothing."""
    import rune.bootstrap.http  # noqa: PLC0415 - the other process needs none of it
    from rune.bootstrap import open_reader, running_engine  # noqa: PLC0415
    from rune.server import app as application  # noqa: PLC0415
    from rune.server.responses import Reply  # noqa: PLC0415
    from rune.settings import Settings  # noqa: PLC0415

    made = application.make_app

    def with_empty(*given: Any) -> Any:
        app = made(*given)

        async def empty(request: Request) -> Response:
            await request.body()
            return Reply({"execution_id": "x" * 26, "replayed": False}, 202)

        empty.need = "view"  # type: ignore[attr-defined]
        router = application.gated()
        router.add_api_route("/api/v1/empty", empty, methods=["POST"])
        app.router.routes.insert(0, router.routes[0])
        return app

    rune.bootstrap.http.make_app = with_empty
    settings = Settings(home=home)
    async with running_engine(settings) as engine, open_reader(settings) as opened:
        await engine.services.workflows.deploy(json.dumps(DOCUMENT).encode())
        await engine.services.workflows.deploy(json.dumps(HEARD).encode())
        await rune.bootstrap.http.serve(
            settings, engine, opened, "127.0.0.1", 0, ready=lambda url: print(url, flush=True)
        )


def request(path: str, body: bytes) -> bytes:
    return (
        b"POST /api/v1%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(size)


async def rate(port: int, path: str, body: bytes, seconds: float, connections: int) -> tuple[float, float]:
    """Answers a second, and the time in ms that 99 of 100 took at most."""
    until = time.perf_counter() + seconds
    times: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < until:
            writer.write(request(path, body))
            status, said = await answer(reader)
            if status != 202:
                raise RuntimeError(f"{status}: {said.decode()}")
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return len(times) / (time.perf_counter() - began), statistics.quantiles(times, n=100)[98] * 1_000


async def watched(
    port: int, pid: int, watchers: int, per_second: int, seconds: float
) -> tuple[float, float, float, float]:
    """Items that wait one after the other tell of so many events a second. How many ms after it was decided the oldest
    event of a piece is with a watcher (99 of 100 pieces, half of them), how many events a second each watcher was told,
    and which part of a processor the server took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    items = [round(at * 2 / per_second, 4) for at in range(per_second // 2)]
    writer.write(request("/workflows/heard/executions", json.dumps({"input": {"items": items}}).encode()))
    execution = json.loads((await answer(reader))[1])["execution_id"]
    late: list[float] = []
    told = 0
    begins = (
        time.time() + 4 + watchers / 100
    )  # by then everybody has what was before, and all items are apart
    until = begins + seconds

    class Watcher(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            ask = f"GET /api/v1/executions/{execution}/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
            transport.write(ask.encode())

        def data_received(self, data: bytes) -> None:
            nonlocal told
            now = time.time()
            if begins < now < until and (found := AT.search(data)) is not None:
                told += data.count(b"\nid: ")
                late.append(now - datetime.fromisoformat(found[1].decode()).timestamp())

    loop = asyncio.get_running_loop()
    watching = [(await loop.create_connection(Watcher, "127.0.0.1", port))[0] for _ in range(watchers)]
    await asyncio.sleep(begins - time.time())
    before = busy(pid)
    await asyncio.sleep(until - time.time())
    share = (busy(pid) - before) / seconds
    for each in (*watching, writer):
        each.close()
    cuts = statistics.quantiles(late, n=100)
    return cuts[98] * 1_000, cuts[49] * 1_000, told / watchers / seconds, share


def busy(pid: int) -> float:
    """Seconds that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(home: str | None = None) -> Iterator[tuple[int, int]]:
    """A server over a folder, or over an empty one: its port and its process."""
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
        before = busy(pid)
        starts, slow = await rate(
            port, "/workflows/bench/executions", body, options.seconds, options.connections
        )
        cost = (busy(pid) - before) / (starts * options.seconds) * 1e6
        print(
            f"starts: {starts:,.0f}/s accepted and durable, 99 of 100 within {slow:.0f} ms; an empty handler:"
            f" {limit:,.0f}/s; {starts / limit:.0%} of it; {cost:.0f} µs of the server's time each, run to the end"
        )
    if options.watchers:
        with started() as (port, pid):
            p99, half, each, share = await watched(
                port, pid, options.watchers, options.events, options.seconds
            )
            print(
                f"live: {each:,.0f} events/s to each of {options.watchers} watchers, 99 of 100 pieces within"
                f" {p99:.0f} ms of the decision, half within {half:.0f} ms; {share:.0%} of a processor"
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
        # Who watches must not be what is measured.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(given))
