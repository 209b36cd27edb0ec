"""Asks through the command line: one process owns the file, every verb is another one."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rune.bootstrap import open_reader
from rune.errors import RuneError
from rune.settings import Settings
from tests.acceptance.cli.process import Rune
from tests.acceptance.conformance.actor import Look, Refusal, Start
from tests.integration.embedded.forks import Forks
from tests.support.waiting import until

PATIENCE = 120.0
HOST = {
    "id": "host",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "stop", "type": "wait", "parameters": {"resume": "signal"}},
    ],
    "edges": [{"src": "start", "dst": "stop"}],
}


class CommandActor(Look):
    """Every verb as a process."""

    def __init__(
        self, folder: pathlib.Path, forks: Forks, rune: Rune, look: Any, environment: dict[str, str]
    ) -> None:
        super().__init__(look)
        self._folder = folder
        self._forks = forks
        self._rune = rune
        self._environment = environment
        self._count = itertools.count(1)
        self.running: list[subprocess.Popen[str]] = []

    async def ask(self, *arguments: str) -> Any:
        """What a command prints; Refusal if it says no."""
        code, out, err = await asyncio.to_thread(self._forks.rune, *arguments, "--json", **self._environment)
        return _told(code, out, err)

    def _file(self, source: str) -> str:
        path = self._folder / f"document-{next(self._count)}.json"
        path.write_text(source)
        return str(path)

    async def deploy(self, source: str, alias: str | None) -> int:
        told = await self.ask("deploy", self._file(source), *_option("--alias", alias))
        return int(told["version"])

    async def alias(self, workflow: str, alias: str, version: int) -> int:
        told = await self.ask("workflows", "alias", workflow, alias, str(version))
        return int(told["version"])

    async def start(self, wanted: Start) -> str:
        options = ["--input", wanted.input, *_option("--key", wanted.key)]
        for name, value in wanted.labels.items():
            options += ["--label", f"{name}={value}"]
        if wanted.fake_time:
            options.append("--fake-time")
        if wanted.workflow is None and wanted.key is None:
            return await self._run(wanted.source, options)
        workflow = wanted.workflow
        if workflow is None:
            told = await self.ask("deploy", self._file(wanted.source))
            workflow = f"{told['workflow_id']}@{told['version']}"
        options += _option("--priority", None if wanted.priority is None else str(wanted.priority))
        return str((await self.ask("start", workflow, *options))["execution_id"])

    async def _run(self, source: str, options: list[str]) -> str:
        """`rune run` sees its execution to the end, so it is left running."""
        name = f"run-{next(self._count)}"
        process = self._rune.begin("run", self._file(source), "--id", name, "--json", *options)
        self.running.append(process)

        async def there() -> bool:
            if process.poll() is not None:
                return True
            try:
                return await self._reader.execution(name) is not None
            except RuneError:
                return False

        await until(there, f"{name} is there", PATIENCE)
        if await self._reader.execution(name) is None:
            out, err = process.communicate()
            _told(process.returncode, out, err)
        return name

    async def signal(
        self, execution: str, name: str, value: str, *, key: str | None, item: str | None
    ) -> bool:
        options = ["--value", value, *_option("--key", key), *_option("--item", item)]
        return bool((await self.ask("signal", execution, name, *options))["resumed"])

    async def pause(self, execution: str) -> bool:
        return bool((await self.ask("pause", execution))["changed"])

    async def resume(self, execution: str) -> bool:
        return bool((await self.ask("resume", execution))["changed"])

    async def cancel(self, execution: str, reason: str) -> str:
        return str((await self.ask("cancel", execution, "--reason", reason))["status"])

    async def retry(self, execution: str, *, failed_items: bool, key: str | None) -> str:
        options = [*(["--failed-items"] if failed_items else []), *_option("--key", key)]
        return str((await self.ask("retry", execution, *options))["execution_id"])

    async def rerun(self, execution: str, node: str, *, item: str | None, key: str | None) -> str:
        options = ["--from", node, *_option("--item", item), *_option("--key", key)]
        return str((await self.ask("rerun", execution, *options))["execution_id"])


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name, value]


def _told(code: int, out: str, err: str) -> Any:
    assert out, f"exit code {code} and nothing printed: {err}"
    told = json.loads(out)
    if told.get("status") == "invalid":
        assert code in (1, 2), (code, out, err)
        problem = told["problems"][0]
        raise Refusal(problem["code"], problem["message"])
    assert code == 0, (code, out, err)
    return told


@asynccontextmanager
async def by_command(folder: pathlib.Path, **environment: str) -> AsyncIterator[CommandActor]:
    """A process that owns the file, and somebody who runs commands beside it."""
    home = folder / "home"
    host = folder / "host.json"
    host.write_text(json.dumps(HOST))
    rune = Rune(home, **environment)
    with Forks(folder) as forks, rune.begin("run", str(host), "--id", "host", "--json") as owner:
        try:
            settings = Settings(home=str(home))
            await until(_reached(forks, home, environment), "the owner is there", PATIENCE)
            async with open_reader(settings) as look:
                actor = CommandActor(folder, forks, rune, look, {**environment, "RUNE_HOME": str(home)})
                yield actor
                assert await actor.signal("host", "stop", "null", key=None, item=None)
            for each in (*actor.running, owner):
                out, _ = each.communicate(timeout=PATIENCE)
                assert json.loads(out)["completed_at"] is not None
        finally:
            if owner.poll() is None:
                owner.send_signal(signal.SIGKILL)


def _reached(forks: Forks, home: pathlib.Path, environment: dict[str, str]) -> Any:
    async def there() -> bool:
        code, out, _ = await asyncio.to_thread(
            forks.rune, "show", "host", "--json", **{**environment, "RUNE_HOME": str(home)}
        )
        return code == 0 and json.loads(out)["execution_id"] == "host"

    return there
