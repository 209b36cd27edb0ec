"""Starts executions on a cluster and runs no nodes: `python -m tests.chaos.cluster_load FOLDER`.

It starts executions of the whole workload under client keys and sends their signals, and retries while a store is
unavailable. FOLDER/keys contains `start KEY` before and `ack KEY ID` after each is accepted, and `ended KEY STATUS`.
After SIGTERM it starts nothing new and exits when all have ended: with 0, or with 1 if one has not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from rune.bootstrap import running_engine
from rune.nodes.registry import full_registry
from rune.ports.journal import ExecutionEndedError, ExecutionRecord, StoreUnavailableError
from rune.runtime.engine import Engine
from rune.runtime.services.executions import RequestRefusedError
from rune.settings import load_settings
from rune.testing.harness import compiled
from tests.chaos.load import Keys
from tests.chaos.workload import CHILD_DOCUMENT, WORKLOAD, Shape

T = TypeVar("T")
IN_FLIGHT = int(os.environ.get("RUNE_CHAOS_IN_FLIGHT", "16"))
MAX_EXECUTIONS = int(os.environ.get("RUNE_CHAOS_MOST", "0"))
"""The number of executions; 0: until SIGTERM."""

ONLY = "RUNE_CHAOS_ONLY"
"""Names the workflows to start, separated by commas; empty: all."""

RETRY_DELAY_S = 0.2
DRAIN_TIMEOUT_S = 240.0


def shape_of(key: str) -> tuple[str, Shape]:
    """Return the workflow that is started under a key."""
    only = os.environ.get(ONLY, "").split(",")
    names = [each for each in WORKLOAD if each in only] or list(WORKLOAD)
    name = names[int(key[1:]) % len(names)]
    return name, WORKLOAD[name]


async def with_retries(act: Callable[[], Awaitable[T]]) -> T:
    """Repeat an action until the stores are available."""
    while True:
        try:
            return await act()
        except StoreUnavailableError:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_DELAY_S):
                    await asyncio.Event().wait()


class Load:
    """Starts executions and waits for their ends."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys
        self._plans = {name: compiled(shape.document, engine.registry) for name, shape in WORKLOAD.items()}
        self.stopping = asyncio.Event()
        self._started = 0

    async def run(self) -> None:
        """Run executions one after the other until stopped."""
        while not self.stopping.is_set() and (not MAX_EXECUTIONS or self._started < MAX_EXECUTIONS):
            self._started += 1
            await self.one()

    async def one(self) -> None:
        key = self._keys.take()
        name, shape = shape_of(key)
        self._keys.note(f"start {key}")

        async def start() -> tuple[ExecutionRecord, asyncio.Future[msgspec.Struct]]:
            return await self._engine.start(self._plans[name], b"{}", key=key, fake_time=shape.fake_time)  # type: ignore[return-value]

        accepted, ending = await with_retries(start)
        self._keys.note(f"ack {key} {accepted.id}")
        for number, signal_name in enumerate(shape.signals):
            await self._signal(accepted.id, signal_name, number)
        end = await ending
        self._keys.note(f"ended {key} {getattr(end, 'status', '')}")

    async def _signal(self, execution: str, name: str, number: int) -> None:
        value = msgspec.json.encode({"n": number})

        async def send() -> None:
            await self._engine.services.executions.signal(execution, name, value, key=f"{name}{number}")

        try:
            await with_retries(send)
        except (
            ExecutionEndedError,
            RequestRefusedError,
        ) as ended:  # the signal was received and only its response was lost
            self._keys.note(f"rejected {execution} {type(ended).__name__}")


async def main(folder: Path) -> int:
    settings = load_settings()
    async with running_engine(settings, registry=full_registry(settings.nodes), working=False) as engine:
        await engine.services.workflows.deploy(msgspec.json.encode(CHILD_DOCUMENT))
        load = Load(engine, Keys(folder))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stopping.set)
        print("the load is ready", flush=True)
        running = [asyncio.create_task(load.run()) for _ in range(IN_FLIGHT)]
        if not MAX_EXECUTIONS:
            await load.stopping.wait()
        done, pending = await asyncio.wait(running, timeout=DRAIN_TIMEOUT_S)
        for each in done:
            each.result()
        for each in pending:
            each.cancel()
        return 1 if pending else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
