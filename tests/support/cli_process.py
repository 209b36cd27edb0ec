"""Runs `rune` commands in separate processes.

A command that is left running is started as a user starts it. A command that runs to its end is forked from a process
that has already imported `rune`, since a short command spends most of its time on start-up.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.support.forked_rune import PATHS, ForkedRune
from tests.support.paths import SOURCE, python_path

T = TypeVar("T")
TIMEOUT_S = 180.0  # s


def until(poll: Callable[[], T | None], what: str) -> T:
    """Poll until the result is not None, and return it."""
    pause = threading.Event()
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        result = poll()
        if result is not None:
            return result
        pause.wait(0.02)
    raise AssertionError(f"waited {TIMEOUT_S:.0f} s in vain until {what}")


def interpreted(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )


class Rune:
    """The command line with one home folder."""

    def __init__(self, home: pathlib.Path, **environment: str) -> None:
        if not home.exists():  # RUNE_HOME names it, so that it must exist to be read
            home.mkdir(parents=True)
        self.home = home
        # A forked child has already imported its modules, so that another PYTHONPATH would have no effect.
        self._forks = environment.get("PYTHONPATH", PATHS) == PATHS
        self._environment = {
            **os.environ,
            "PYTHONPATH": python_path(SOURCE),
            "RUNE_HOME": str(home),
            "NO_COLOR": "1",
            **environment,
        }

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        return subprocess.Popen(
            # If the tests run as a background job of a shell, their child processes inherit ignored signals.
            ["env", "--default-signal=INT,TERM", sys.executable, "-m", "rune.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        if self._forks:
            with tempfile.TemporaryDirectory(prefix="rune-output-") as folder:
                request = {
                    "arguments": arguments,
                    "environment": self._environment,
                    "folder": str(pathlib.Path.cwd()),
                }
                return subprocess.CompletedProcess(arguments, *ForkedRune(pathlib.Path(folder)).run(request))
        with self.begin(*arguments) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command and return the document that it prints."""
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)
