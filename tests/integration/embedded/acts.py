"""Takes an execution through steps in a process that may be killed on the way; the next process goes on from the first
step that was not answered.

`python -m tests.integration.embedded.acts` reads a JSON object a line, like `tests.integration.embedded.forks`.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import traceback
from contextlib import suppress
from typing import Any

from rune.bootstrap import open_reader, running_engine
from rune.settings import Settings
from tests.acceptance.conformance.actor import Refusal
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import ServiceActor
from tests.acceptance.conformance.stubs import Surroundings
from tests.acceptance.conformance.walk import Walk
from tests.integration.embedded.forks import Forks, command, serve

PATIENCE = 120.0


class Acts(Forks):
    """Somebody to ask for processes that act on executions."""

    module = "tests.integration.embedded.acts"

    def take(
        self,
        home: pathlib.Path,
        steps: list[dict[str, Any]],
        *,
        failpoint: str = "",
        works: bool = True,
        upto: int | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Take the steps that were not taken before. How the process ended, and what became of the executions."""
        asked = {"home": str(home), "steps": steps[:upto], "works": works}
        environment = {"RUNE_FAILPOINT": failpoint, "RUNE_TEST_LEDGER": str(home / "ledger")}
        code, out, err = self.ask({**asked, "environment": environment})
        assert code != 1, out + err
        return code, json.loads(out) if code == 0 else {}


class Progress:
    """Which steps were answered, and who is who: on disk before anything else is asked."""

    def __init__(self, home: pathlib.Path) -> None:
        self._path = home / "progress.json"
        self.taken = 0
        self.names: dict[str, str] = {}
        if self._path.exists():
            told = json.loads(self._path.read_text())
            self.taken, self.names = told["taken"], told["names"]

    def save(self, taken: int, names: dict[str, str]) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps({"taken": taken, "names": names}))
        os.replace(beside, self._path)


async def _take(asked: dict[str, Any]) -> dict[str, Any]:
    home = pathlib.Path(asked["home"])
    progress = Progress(home)
    steps = tuple(asked["steps"])
    case = Case(name="acts", about="", covers=(), steps=steps, timeout_s=PATIENCE)
    settings = Settings(
        home=str(home),
        nodes=("tests.integration.embedded.ledger_nodes",),
        durability="relaxed",
        grace=1,
        slots=1,
    )
    async with running_engine(settings, working=asked["works"]) as engine, open_reader(settings) as look:
        actor = ServiceActor(engine, look)
        walk = Walk(case, actor, Surroundings(case))
        walk.names = progress.names
        for number, step in enumerate(steps[progress.taken :], start=progress.taken):
            await _step(walk, step, again=number == progress.taken > 0)
            progress.save(number + 1, walk.names)
        if asked["environment"]["RUNE_FAILPOINT"].endswith(":1"):
            await _death()
        return {name: await actor.document(each) for name, each in walk.names.items()}


async def _death() -> None:
    """The outcome may be seen before the engine comes by the point at which this process is to die."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.Event().wait()


async def _step(walk: Walk, step: dict[str, Any], *, again: bool) -> None:
    """Whoever asks a second time may be told that it has ended: by what was asked for the first time."""
    try:
        await walk.take(step)
    except Refusal as refused:
        if not again or refused.code != "ENDED":
            raise


def _work(asked: dict[str, Any]) -> None:
    if "arguments" in asked:
        command(asked)
        return
    pathlib.Path(asked["home"]).mkdir(exist_ok=True)
    try:
        print(json.dumps(asyncio.run(_take(asked))))  # noqa: T201 - what the parent reads
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    serve(_work)
