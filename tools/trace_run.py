"""Traces one workflow from `POST` to completion and prints the files and functions of Rune that it passes.

python tools/trace_run.py [--fan-out 3] [--cold] [--functions]

The backend is that of the settings: embedded by default, RabbitMQ with the environment that `make services-up` writes
(`set -a; . .services/rabbitmq.env`). The workflow is deployed and started once before the trace, so that the trace
shows a process with open connections and a compiled plan; `--cold` traces the first start of a definition that no
process has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import uuid
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import rune
from rune.bootstrap import open_reader, running_engine
from rune.bootstrap.http import serve
from rune.runtime.engine import Engine
from rune.settings import Settings, load_settings

PACKAGE = Path(rune.__file__).resolve().parent
TIMEOUT_S = 30.0
NOT_TRACED = "Engine.wait_for"  # called by this tool, not by the execution
WATCHDOG = "LoopWatchdog."  # runs every few ms, whether or not there is an execution
PERIODIC = frozenset(
    {
        "BulkService.run",
        "ChangeNotifier.run",
        "Cleaner.run",
        "Heartbeat.run",
        "LiveFollower.run",
        "OutboxRelay.run",
        "ReadinessProbe.run",
        "StatisticsCache.run",
        "TriggerScheduler.run",
    }
)
"""Loops with a period of their own. A slow machine passes more of them during one execution, which is not its path."""


TWO_NODES: dict[str, Any] = {
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "out", "type": "output", "parameters": {"value": "Hello, {{ $trigger.name }}!"}},
    ],
    "edges": [{"src": "in", "dst": "out"}],
}
FAN_OUT: dict[str, Any] = {
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "log", "type": "log", "parameters": {"message": "item {{ $item }}"}},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [{"src": "in", "dst": "each"}, {"src": "each", "dst": "log"}, {"src": "log", "dst": "all"}],
}


class Tracer:
    """Records the code objects of Rune that are entered in any thread while it is on."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._package = str(PACKAGE)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._codes or not code.co_filename.startswith(self._package):
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_qualname in PERIODIC:
                return
            caller = caller.f_back
        self._codes.add(code)

    def start(self) -> None:
        """Begin in this thread and in those that are started from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def functions(self) -> dict[str, list[str]]:
        """By file, relative to the package: the functions in the order of their lines."""
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for code in self._codes:
            called = code.co_qualname
            if code.co_name != "<module>" and called != NOT_TRACED and not called.startswith(WATCHDOG):
                name = Path(code.co_filename).relative_to(PACKAGE).as_posix()
                found[name].append((code.co_firstlineno, called))
        return {name: [each for _, each in sorted(found[name])] for name in sorted(found)}


async def trace(settings: Settings, definition: dict[str, Any], payload: Any, *, cold: bool) -> Tracer:
    """Serve the API in this process, start one execution over HTTP and trace it to its end."""
    tracer = Tracer()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(running_engine(settings))
        reader = await stack.enter_async_context(open_reader(settings))
        serving = asyncio.create_task(
            serve(settings, engine, reader, "127.0.0.1", 0, stop=stop, ready=address.set_result)
        )
        async with httpx.AsyncClient(base_url=await address, timeout=TIMEOUT_S) as client:
            body: dict[str, Any] = {"input": payload}
            url = "/api/v1/executions"
            if cold:
                body["definition"] = definition
            else:
                deployed = await client.post("/api/v1/workflows", json=definition)
                deployed.raise_for_status()
                url = f"/api/v1/workflows/{definition['id']}/executions"
                await run(engine, client, url, body)
            tracer.start()
            await run(engine, client, url, body)
            tracer.stop()
        stop.set_result(None)
        await serving
    return tracer


async def run(engine: Engine, client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> None:
    """Start one execution and wait for its end."""
    answer = await client.post(url, json=body)
    answer.raise_for_status()
    ending = await engine.wait_for(answer.json()["execution_id"])
    end = await asyncio.wait_for(ending, TIMEOUT_S)
    if end.status != "completed":
        raise SystemExit(f"the execution ended as {end.status}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fan-out", type=int, default=0, metavar="N", help="fan out over N items")
    parser.add_argument("--cold", action="store_true", help="start a definition that was not deployed before")
    parser.add_argument("--functions", action="store_true", help="print the functions of each file")
    options = parser.parse_args()
    definition = {**(FAN_OUT if options.fan_out else TWO_NODES), "id": f"traced-{uuid.uuid4().hex[:12]}"}
    payload: Any = {"items": list(range(options.fan_out))} if options.fan_out else {"name": "Ada"}
    with tempfile.TemporaryDirectory(prefix="rune-trace-") as home:
        settings = load_settings({"RUNE_HOME": home, **os.environ}, Path(home))
        tracer = asyncio.run(trace(settings, definition, payload, cold=options.cold))
    found = tracer.functions()
    for name, functions in found.items():
        print(f"{len(functions):4}  {name}")
        if options.functions:
            for each in functions:
                print(f"        {each}")
    print(f"{len(found)} files, {sum(map(len, found.values()))} functions")


if __name__ == "__main__":
    main()
