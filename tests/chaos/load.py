"""A loaded engine: `python -m tests.chaos.load HOME [--drain]`.

It starts executions of every shape under client keys, writes `start KEY` before and `ack KEY ID` after each is accepted
to HOME/keys, and prints a line for each that ends. With `--drain` it starts nothing and runs the existing executions to
their end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from rune.bootstrap import running_engine
from rune.core.execution.fact import ExecutionEnded
from rune.nodes.registry import full_registry
from rune.runtime.engine import Engine
from rune.settings import Settings
from rune.testing.harness import compiled
from tests.support.ledger_workflows import PAYLOAD, SHAPES

NODES = ("tests.support.ledger_nodes",)
IN_FLIGHT = 12
SLOTS = 8
DEADLINE = 120.0


class Keys:
    """The client keys that were tried and acknowledged, written to disk first."""

    def __init__(self, home: Path) -> None:
        self._path = home / "keys"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        entries = [line.split() for line in lines]
        self.acked = {words[1]: words[2] for words in entries if words[0] == "ack"}
        tried = [words[1] for words in entries if words[0] == "start"]
        self.open = [key for key in dict.fromkeys(tried) if key not in self.acked]
        self._next = len(set(tried))
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def take(self) -> str:
        """Return a key that was tried and not acknowledged, otherwise a new one."""
        if self.open:
            return self.open.pop()
        self._next += 1
        return f"k{self._next}"

    def note(self, line: str) -> None:
        os.write(self._handle, f"{line}\n".encode())


async def _one(engine: Engine, keys: Keys) -> ExecutionEnded:
    key = keys.take()
    shape = SHAPES[list(SHAPES)[int(key[1:]) % len(SHAPES)]]
    plan = compiled(shape.document, engine.registry)
    keys.note(f"start {key}")
    accepted, ending = await engine.start(
        plan, msgspec.json.encode(PAYLOAD), key=key, fake_time=shape.fake_time
    )
    keys.note(f"ack {key} {accepted.id}")
    return await ending


async def _load(engine: Engine, keys: Keys) -> None:
    while True:
        await _one(engine, keys)
        print("ended", flush=True)


async def main(home: Path, drain: bool) -> None:
    os.environ.setdefault("RUNE_TEST_LEDGER", str(home / "ledger"))
    keys = Keys(home)
    settings = Settings(home=str(home), nodes=NODES, slots=SLOTS, durability="relaxed")
    async with running_engine(settings, registry=full_registry(NODES)) as engine:
        if not drain:
            await asyncio.gather(*(_load(engine, keys) for _ in range(IN_FLIGHT)))
        async with asyncio.timeout(DEADLINE):
            while keys.open:
                await _one(engine, keys)
            for execution in keys.acked.values():
                await (await engine.wait_for(execution))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), "--drain" in sys.argv))
