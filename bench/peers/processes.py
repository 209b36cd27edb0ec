"""Runs a program with everything that it starts, for a limited time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class TimeUsedUpError(Exception):
    """A program took longer than it may, or the time of the whole run was used up before it began."""


class Budget:
    """The time of a whole run, of which each program may take a part."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def part(self, seconds: float) -> float:
        """Return how long a program may take that is given at most `seconds`."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeUsedUpError("the time of the run was used up before")
        return min(seconds, left)


def run_limited(
    words: list[str], seconds: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program; kill it with all processes that it started when it ends or when the time is up."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeUsedUpError(f"took longer than {seconds:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)
