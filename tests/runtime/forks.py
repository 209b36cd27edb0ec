"""Runs `rune` in children of a process that has imported it already: a fresh process each time, without the start-up.

`python -m tests.runtime.forks` reads a JSON object a line (arguments, environment, files) and answers an exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLED = 137


class Forks:
    """Somebody to ask for runs of `rune`."""

    module = "tests.runtime.forks"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._number = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def rune(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        return self.ask({"arguments": arguments, "environment": environment})

    def ask(self, asked: dict[str, Any]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a child."""
        self._number += 1
        out, err = (self._folder / f"{name}-{self._number}" for name in ("stdout", "stderr"))
        asked = {**asked, "stdout": str(out), "stderr": str(err)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, out.read_text(), err.read_text()


def child(asked: dict[str, Any], work: Callable[[dict[str, Any]], None]) -> None:
    """Do something in this process, which is somebody's child, and end."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
    os.environ.update(asked["environment"])
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


def serve(work: Callable[[dict[str, Any]], None], *modules: str) -> None:
    """Import what the children need, then have one child after the other."""
    for name in ("rune.cli.main", "rune.cli.running", "tests.runtime.ledger_nodes", *modules):
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            child(json.loads(line), work)
        _, status = os.waitpid(process, 0)
        answer = os.waitstatus_to_exitcode(status)
        os.write(1, f"{answer}\n".encode())


if __name__ == "__main__":
    serve(command)
