"""Runs `rune` in children of a process that has imported it already: a fresh process each time, without the start-up.

`python -m tests.integration.embedded.forks` reads one JSON object per line (arguments, environment, files) and prints
an exit code. One such process serves all tests of a test process.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.support.paths import ROOT, SOURCE, python_path

PATHS = python_path(SOURCE, ROOT)
KILLED = 137
PATIENCE = 180  # s


class Server:
    """The process that has children for whoever asks, one after the other."""

    def __init__(self, module: str) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, asked: dict[str, Any]) -> int:
        """The exit code of a child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


@functools.cache
def server(module: str) -> Server:
    """The one of this test process."""
    made = Server(module)
    atexit.register(made.end)
    return made


class Forks:
    """Somebody to ask for runs of `rune`."""

    module = "tests.integration.embedded.forks"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The server stays for the next who asks."""

    def rune(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        return self.ask({"arguments": arguments, "environment": environment})

    def ask(self, asked: dict[str, Any]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a child."""
        self._number += 1
        out, err = (self._folder / f"{name}-{self._number}" for name in ("stdout", "stderr"))
        environment = {**os.environ, "PYTHONPATH": PATHS, **asked["environment"]}
        asked = {**asked, "environment": environment, "stdout": str(out), "stderr": str(err)}
        code = server(self.module).ask(asked)
        return code, out.read_text(), err.read_text()


def child(asked: dict[str, Any], work: Callable[[dict[str, Any]], None]) -> None:
    """Do something in this process, which is somebody's child, and end."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what comes in there is for the parent
    os.chdir(asked.get("folder", ROOT))
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.alarm(PATIENCE)  # nobody else would end one that hangs
    code: Any = 1
    try:
        work(asked)
        code = 0
    except SystemExit as done:
        code = done.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def command(asked: dict[str, Any]) -> None:
    """A command of `rune`."""
    sys.argv = ["rune", *asked["arguments"]]
    from rune.cli.main import main

    main()


OFTEN = (
    "rune.cli.main",
    "rune.cli.commands.run",
    "rune.cli.follow",
    "rune.cli.backend",
    "rune.cli.output",
    "rune.documents.loader",
    "rune.documents.input_schema",
    "rune.documents.yaml",
    "rune.runtime.queries.verify",
    "rich.console",
    "aiohttp",
    "tests.integration.embedded.ledger_nodes",
)


def _said_nothing() -> None:
    """Have a command refused: what reads the arguments is imported with the first that is given any."""
    from typer.testing import CliRunner

    from rune.cli.main import app

    CliRunner().invoke(app, ["check", "nowhere.json", "--json"])


def serve(work: Callable[[dict[str, Any]], None], *modules: str) -> None:
    """Import what the children need, then have one child after the other."""
    for name in (*OFTEN, *modules):
        importlib.import_module(name)
    _said_nothing()
    gc.freeze()  # what is there already need not be looked at, and copied, in every child
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            child(json.loads(line), work)
        _, status = os.waitpid(process, 0)
        answer = os.waitstatus_to_exitcode(status)
        os.write(1, f"{answer}\n".encode())


if __name__ == "__main__":
    serve(command)
