"""`rune` as a process of its own, and patience that ends.

What is begun and left running is started as a user starts it. What is run to its end is a process too, but a child of
one that has imported `rune` already: most of the time of a short command would go into its start-up.
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

from tests.integration.embedded.forks import PATHS, Forks
from tests.support.paths import SOURCE, python_path

T = TypeVar("T")
PATIENCE = 180.0  # s


def until(ask: Callable[[], T | None], what: str) -> T:
    """Ask again and again until there is an answer."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        pause.wait(0.02)
    raise AssertionError(f"waited {PATIENCE:.0f} s in vain until {what}")


def interpreted(code: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter that has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )


class Rune:
    """The command line over one home folder."""

    def __init__(self, home: pathlib.Path, **environment: str) -> None:
        self.home = home
        # What is imported cannot be chosen anew in a child.
        self._alike = environment.get("PYTHONPATH", PATHS) == PATHS
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
            # A shell's background job ignores Ctrl-C, and so would what it starts: tests may be such a job.
            ["env", "--default-signal=INT,TERM", sys.executable, "-m", "rune.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        if self._alike:
            with tempfile.TemporaryDirectory(prefix="rune-said-") as folder:
                asked = {
                    "arguments": arguments,
                    "environment": self._environment,
                    "folder": str(pathlib.Path.cwd()),
                }
                return subprocess.CompletedProcess(arguments, *Forks(pathlib.Path(folder)).ask(asked))
        with self.begin(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints."""
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)
