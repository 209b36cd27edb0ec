"""An actor that runs one `rune` process per operation while another process owns the file."""

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
from tests.acceptance.conformance.actor import ExecutionView, RejectedError, Start
from tests.support.cli_process import Rune
from tests.support.forked_rune import ForkedRune
from tests.support.waiting import until

TIMEOUT_S = 120.0
HOST = {
    "id": "host",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "stop", "type": "wait", "parameters": {"resume": "signal"}},
    ],
    "edges": [{"src": "start", "dst": "stop"}],
}


class CommandActor(ExecutionView):
    def __init__(
        self, folder: pathlib.Path, forked: ForkedRune, rune: Rune, reader: Any, environment: dict[str, str]
    ) -> None:
        super().__init__(reader)
        self._folder = folder
        self._forked = forked
        self._rune = rune
        self._environment = environment
        self._count = itertools.count(1)
        self.running: list[subprocess.Popen[str]] = []

    async def command(self, *arguments: str) -> Any:
        """Run a command and return the document that it prints."""
        code, out, err = await asyncio.to_thread(self._forked.rune, *arguments, "--json", **self._environment)
        return _parse_output(code, out, err)

    def _file(self, source: str) -> str:
        path = self._folder / f"document-{next(self._count)}.json"
        path.write_text(source)
        return str(path)

    async def deploy(self, source: str, alias: str | None) -> int:
        deployed = await self.command("deploy", self._file(source), *_option("--alias", alias))
        return int(deployed["version"])

    async def alias(self, workflow: str, alias: str, version: int) -> int:
        moved = await self.command("workflows", "alias", workflow, alias, str(version))
        return int(moved["version"])

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
            deployed = await self.command("deploy", self._file(wanted.source))
            workflow = f"{deployed['workflow_id']}@{deployed['version']}"
        options += _option("--priority", None if wanted.priority is None else str(wanted.priority))
        return str((await self.command("start", workflow, *options))["execution_id"])

    async def _run(self, source: str, options: list[str]) -> str:
        """Start `rune run` in the background, since it returns only when its execution has ended."""
        name = f"run-{next(self._count)}"
        process = self._rune.begin("run", self._file(source), "--id", name, "--json", *options)
        self.running.append(process)

        async def exists() -> bool:
            if process.poll() is not None:
                return True
            try:
                return await self._reader.execution(name) is not None
            except RuneError:
                return False

        await until(exists, f"{name} exists", TIMEOUT_S)
        if await self._reader.execution(name) is None:
            out, err = process.communicate()
            _parse_output(process.returncode, out, err)
        return name

    async def signal(
        self, execution: str, name: str, value: str, *, key: str | None, item: str | None
    ) -> bool:
        options = ["--value", value, *_option("--key", key), *_option("--item", item)]
        return bool((await self.command("signal", execution, name, *options))["resumed"])

    async def pause(self, execution: str) -> bool:
        return bool((await self.command("pause", execution))["changed"])

    async def resume(self, execution: str) -> bool:
        return bool((await self.command("resume", execution))["changed"])

    async def cancel(self, execution: str, reason: str) -> str:
        return str((await self.command("cancel", execution, "--reason", reason))["status"])

    async def retry(self, execution: str, *, failed_items: bool, key: str | None) -> str:
        options = [*(["--failed-items"] if failed_items else []), *_option("--key", key)]
        return str((await self.command("retry", execution, *options))["execution_id"])

    async def rerun(self, execution: str, node: str, *, item: str | None, key: str | None) -> str:
        options = ["--from", node, *_option("--item", item), *_option("--key", key)]
        return str((await self.command("rerun", execution, *options))["execution_id"])


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name, value]


def _parse_output(code: int, out: str, err: str) -> Any:
    assert out, f"exit code {code} and nothing printed: {err}"
    document = json.loads(out)
    if document.get("status") == "invalid":
        assert code in (1, 2), (code, out, err)
        problem = document["problems"][0]
        raise RejectedError(problem["code"], problem["message"])
    assert code == 0, (code, out, err)
    return document


@asynccontextmanager
async def open_command_actor(folder: pathlib.Path, **environment: str) -> AsyncIterator[CommandActor]:
    """Start a process that owns the file and yield an actor that runs commands beside it."""
    home = folder / "home"
    host = folder / "host.json"
    host.write_text(json.dumps(HOST))
    rune = Rune(home, **environment)
    with ForkedRune(folder) as forked, rune.begin("run", str(host), "--id", "host", "--json") as owner:
        try:
            settings = Settings(home=str(home))
            await until(_owner_started(forked, home, environment), "the owner has started", TIMEOUT_S)
            async with open_reader(settings) as reader:
                actor = CommandActor(folder, forked, rune, reader, {**environment, "RUNE_HOME": str(home)})
                yield actor
                assert await actor.signal("host", "stop", "null", key=None, item=None)
            for each in (*actor.running, owner):
                out, _ = each.communicate(timeout=TIMEOUT_S)
                assert json.loads(out)["completed_at"] is not None
        finally:
            if owner.poll() is None:
                owner.send_signal(signal.SIGKILL)


def _owner_started(forked: ForkedRune, home: pathlib.Path, environment: dict[str, str]) -> Any:
    async def started() -> bool:
        code, out, _ = await asyncio.to_thread(
            forked.rune, "show", "host", "--json", **{**environment, "RUNE_HOME": str(home)}
        )
        return code == 0 and json.loads(out)["execution_id"] == "host"

    return started
