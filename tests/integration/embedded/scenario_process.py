"""Runs the steps of a scenario in a process that may be killed; the next process continues with the first open step.

`python -m tests.integration.embedded.scenario_process` reads requests like `tests.support.forked_rune`.
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
from tests.acceptance.conformance.actor import RejectedError
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import ServiceActor
from tests.acceptance.conformance.step_runner import StepRunner
from tests.acceptance.conformance.stubs import StubServers
from tests.support.forked_rune import ForkedRune, run_command, serve

TIMEOUT_S = 120.0


class ScenarioRunner(ForkedRune):
    """Runs scenarios in forked children."""

    module = "tests.integration.embedded.scenario_process"

    def run_steps(
        self,
        home: pathlib.Path,
        steps: list[dict[str, Any]],
        *,
        failpoint: str = "",
        works: bool = True,
        upto: int | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Run the steps that are not completed; return the exit code and the documents of the named executions."""
        request = {"home": str(home), "steps": steps[:upto], "works": works}
        environment = {"RUNE_FAILPOINT": failpoint, "RUNE_TEST_LEDGER": str(home / "ledger")}
        code, out, err = self.run({**request, "environment": environment})
        assert code != 1, out + err
        return code, json.loads(out) if code == 0 else {}


class Progress:
    """The number of completed steps and the names of executions, written to disk after each step."""

    def __init__(self, home: pathlib.Path) -> None:
        self._path = home / "progress.json"
        self.completed = 0
        self.names: dict[str, str] = {}
        if self._path.exists():
            stored = json.loads(self._path.read_text())
            self.completed, self.names = stored["completed"], stored["names"]

    def save(self, completed: int, names: dict[str, str]) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps({"completed": completed, "names": names}))
        os.replace(temporary, self._path)


async def _run_steps(request: dict[str, Any]) -> dict[str, Any]:
    home = pathlib.Path(request["home"])
    progress = Progress(home)
    steps = tuple(request["steps"])
    case = Case(name="scenario", about="", covers=(), steps=steps, timeout_s=TIMEOUT_S)
    settings = Settings(
        home=str(home),
        nodes=("tests.support.ledger_nodes",),
        durability="relaxed",
        grace=1,
        slots=1,
    )
    async with running_engine(settings, working=request["works"]) as engine, open_reader(settings) as reader:
        actor = ServiceActor(engine, reader)
        runner = StepRunner(case, actor, StubServers(case))
        runner.names = progress.names
        for number, step in enumerate(steps[progress.completed :], start=progress.completed):
            await _run_step(runner, step, repeated=number == progress.completed > 0)
            progress.save(number + 1, runner.names)
        if request["environment"]["RUNE_FAILPOINT"].endswith(":1"):
            await _wait_for_kill()
        return {name: await actor.document(each) for name, each in runner.names.items()}


async def _wait_for_kill() -> None:
    """The result may be visible before the engine passes the failpoint."""
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.Event().wait()


async def _run_step(runner: StepRunner, step: dict[str, Any], *, repeated: bool) -> None:
    """A repeated step may be rejected with ENDED if its first attempt ended the execution."""
    try:
        await runner.run_step(step)
    except RejectedError as error:
        if not repeated or error.code != "ENDED":
            raise


def _handle(request: dict[str, Any]) -> None:
    if "arguments" in request:
        run_command(request)
        return
    pathlib.Path(request["home"]).mkdir(exist_ok=True)
    try:
        print(json.dumps(asyncio.run(_run_steps(request))))  # noqa: T201 - read by the parent
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    serve(_handle)
