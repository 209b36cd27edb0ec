"""Runs `rune` in forked children of a prepared process: a fresh process each time, without the start-up time.

`python -m tests.support.forked_rune` reads one JSON object per line (arguments, environment, files) and prints an exit
code. One such fork server serves all tests of a test process.
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
TIMEOUT_S = 180


class ForkServer:
    """A process that forks one child per request, one after the other."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, request: dict[str, Any]) -> int:
        """Run a child and return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    @property
    def process_id(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def fork_server(module: str) -> ForkServer:
    """The fork server of this test process."""
    server = ForkServer(module)
    atexit.register(server.close)
    return server


class ForkedRune:
    """Runs `rune` commands in forked children; their output goes to files in a folder."""

    module = "tests.support.forked_rune"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The fork server stays for the next test."""

    def rune(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        return self.run({"arguments": arguments, "environment": environment})

    def run(self, request: dict[str, Any]) -> tuple[int, str, str]:
        """Run a child; return its exit code, stdout and stderr."""
        self._number += 1
        out, err = (self._folder / f"{name}-{self._number}" for name in ("stdout", "stderr"))
        environment = {**os.environ, "PYTHONPATH": PATHS, **request["environment"]}
        request = {**request, "environment": environment, "stdout": str(out), "stderr": str(err)}
        code = fork_server(self.module).run(request)
        return code, out.read_text(), err.read_text()


def run_child(request: dict[str, Any], work: Callable[[dict[str, Any]], None]) -> None:
    """Handle a request in this process, a forked child, and exit."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the input belongs to the fork server
    os.chdir(request.get("folder", ROOT))
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.alarm(TIMEOUT_S)  # ends a child that hangs
    code: Any = 1
    try:
        work(request)
        code = 0
    except SystemExit as done:
        code = done.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def run_command(request: dict[str, Any]) -> None:
    """Run a command of `rune` in this process."""
    sys.argv = ["rune", *request["arguments"]]
    from rune.cli.main import main

    main()


PRELOADED = (
    "rune.cli.main",
    "rune.cli.commands.run",
    "rune.cli.follow",
    "rune.cli.backend",
    "rune.cli.output",
    "rune.documents.loader",
    "rune.documents.json_schema",
    "rune.documents.yaml",
    "rune.runtime.queries.verify",
    "rich.console",
    "aiohttp",
    "tests.support.ledger_nodes",
)


def _load_parser() -> None:
    """Run a failing command, since the argument parser is imported by the first command that has arguments."""
    from typer.testing import CliRunner

    from rune.cli.main import app

    CliRunner().invoke(app, ["check", "nowhere.json", "--json"])


def serve(work: Callable[[dict[str, Any]], None], *modules: str) -> None:
    """Import the modules that children need, then fork one child per input line."""
    for name in (*PRELOADED, *modules):
        importlib.import_module(name)
    _load_parser()
    gc.freeze()  # otherwise the collector of each child would touch, and so copy, all objects
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            run_child(json.loads(line), work)
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        os.write(1, f"{code}\n".encode())


if __name__ == "__main__":
    serve(run_command)
