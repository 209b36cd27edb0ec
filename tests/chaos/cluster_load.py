"""Somebody who loads a cluster and runs no node: `python -m tests.chaos.cluster_load FOLDER`.

Under client keys it starts executions of the whole mixture and sends them their signals, however often a store is
away meanwhile. FOLDER/keys says `start KEY` before and `ack KEY ID` after each is accepted, and `ended KEY STATUS`.
After SIGTERM nothing new is started, and it leaves when all have ended: 0, or 1 if one has not.
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
from tests.chaos.mixture import CHILD_DOCUMENT, MIXTURE, Shape

T = TypeVar("T")
IN_FLIGHT = int(os.environ.get("RUNE_CHAOS_IN_FLIGHT", "16"))
MOST = int(os.environ.get("RUNE_CHAOS_MOST", "0"))
"""So many executions at most; 0: until told to stop."""

ONLY = os.environ.get("RUNE_CHAOS_ONLY", "")
PAUSE = 0.2
PATIENCE = 240.0
"""How long after the last fault an execution may take, in seconds."""


def shape_of(key: str) -> tuple[str, Shape]:
    """What is started under a key."""
    names = [each for each in MIXTURE if each == ONLY] or list(MIXTURE)
    name = names[int(key[1:]) % len(names)]
    return name, MIXTURE[name]


async def insisting(act: Callable[[], Awaitable[T]]) -> T:
    """Do something as often as it takes."""
    while True:
        try:
            return await act()
        except StoreUnavailableError:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await asyncio.Event().wait()


class Load:
    """Executions under way."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys
        self._plans = {name: compiled(shape.document, engine.registry) for name, shape in MIXTURE.items()}
        self.stopping = asyncio.Event()
        self._started = 0

    async def run(self) -> None:
        """One after the other, until told to stop."""
        while not self.stopping.is_set() and (not MOST or self._started < MOST):
            self._started += 1
            await self.one()

    async def one(self) -> None:
        key = self._keys.take()
        name, shape = shape_of(key)
        self._keys.note(f"start {key}")

        async def start() -> tuple[ExecutionRecord, asyncio.Future[msgspec.Struct]]:
            return await self._engine.start(self._plans[name], b"{}", key=key, fake_time=shape.fake_time)  # type: ignore[return-value]

        accepted, ending = await insisting(start)
        self._keys.note(f"ack {key} {accepted.id}")
        for number, said in enumerate(shape.signals):
            await self._say(accepted.id, said, number)
        end = await ending
        self._keys.note(f"ended {key} {getattr(end, 'status', '')}")

    async def _say(self, execution: str, name: str, number: int) -> None:
        value = msgspec.json.encode({"n": number})

        async def say() -> None:
            await self._engine.services.executions.signal(execution, name, value, key=f"{name}{number}")

        try:
            await insisting(say)
        except (
            ExecutionEndedError,
            RequestRefusedError,
        ) as ended:  # it was heard: what broke off was only the answer
            self._keys.note(f"unheard {execution} {type(ended).__name__}")


async def main(folder: Path) -> int:
    settings = load_settings()
    async with running_engine(settings, registry=full_registry(settings.nodes), working=False) as engine:
        await engine.services.workflows.deploy(msgspec.json.encode(CHILD_DOCUMENT))
        load = Load(engine, Keys(folder))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stopping.set)
        print("the load is ready", flush=True)
        running = [asyncio.create_task(load.run()) for _ in range(IN_FLIGHT)]
        if not MOST:
            await load.stopping.wait()
        done, pending = await asyncio.wait(running, timeout=PATIENCE)
        for each in done:
            each.result()
        for each in pending:
            each.cancel()
        return 1 if pending else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
