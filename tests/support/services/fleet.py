"""Worker, scheduler and API processes over shared stores."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rune.settings import Settings
from tests.support.paths import ROOT, SOURCE, python_path

Role = Literal["worker", "scheduler", "api"]
READY = " is ready"
TIMEOUT_S = 120.0


class Process:
    """One process and its output."""

    def __init__(
        self, role: Role, environment: Mapping[str, str], log: Path, arguments: tuple[str, ...] = ()
    ) -> None:
        self.role = role
        self.log = log
        self._out = log.open("w")
        # The kernel kills it with the test process, however that ends.
        command = ["setpriv", "--pdeathsig=KILL", sys.executable, "-m", "rune", "serve", role, *arguments]
        self.process = subprocess.Popen(
            command, env=dict(environment), stdout=self._out, stderr=subprocess.STDOUT, start_new_session=True
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        return self.log.read_text()

    def wait_ready(self) -> None:
        """Wait until the process is ready."""
        self.wait_for_output(READY)

    def wait_for_output(self, text: str, times: int = 1) -> None:
        """Wait until the output contains a text so often."""
        pause = threading.Event()
        until = time.monotonic() + TIMEOUT_S
        while self.output().count(text) < times:
            if not self.alive and self.output().count(text) < times:
                raise AssertionError(
                    f"the {self.role} ended with {self.process.returncode}: {self.output()[-2000:]}"
                )
            if time.monotonic() > until:
                raise AssertionError(f"the {self.role} did not print `{text}`: {self.output()[-2000:]}")
            pause.wait(0.02)

    @property
    def url(self) -> str:
        """The URL of an API process that is ready."""
        found = re.search(r"at (http://\S+) is ready", self.output())
        assert found is not None, self.output()[-2000:]
        return found[1]

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._out.close()

    def stop(self, patience: float = TIMEOUT_S) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        if self.alive:
            self.process.terminate()
        code = self.process.wait(patience)
        self._out.close()
        return code


class Fleet:
    """Processes that share stores. `settings`: for an engine of the test process."""

    def __init__(
        self, folder: Path, settings: Settings, environment: Mapping[str, str] | None = None
    ) -> None:
        self.settings = settings
        self.processes: list[Process] = []
        self.folder = folder
        self._count = 0
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RUNE_")},
            "PYTHONPATH": python_path(SOURCE, ROOT),
            "RUNE_HOME": str(folder),
            "RUNE_JOURNAL": settings.journal,
            "RUNE_STATE": settings.state,
            "RUNE_QUEUE": settings.queue,
            "RUNE_PREFIX": settings.prefix,
            **(environment or {}),
        }

    def start(self, role: Role, *arguments: str, **more: str) -> Process:
        """Start a process without waiting for it."""
        self._count += 1
        log = self.folder / f"{role}-{self._count}.log"
        process = Process(role, {**self.environment, **more}, log, arguments)
        self.processes.append(process)
        return process

    def api(self, **more: str) -> Process:
        """Start an API on a free port and wait until it is ready."""
        made = self.start("api", "--port", "0", **more)
        made.wait_ready()
        return made

    def of(self, role: Role) -> list[Process]:
        """Return the live processes of a role."""
        return [each for each in self.processes if each.role == role and each.alive]

    def stop(self) -> None:
        for each in self.processes:
            each.kill()


@contextmanager
def fleet(
    folder: Path,
    settings: Settings,
    *,
    workers: int = 2,
    schedulers: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Fleet]:
    """Start processes, wait until they are ready, and kill them at the end of the block."""
    made = Fleet(folder, settings, environment)
    try:
        for _ in range(workers):
            made.start("worker")
        for _ in range(schedulers):
            made.start("scheduler")
        for each in made.processes:
            each.wait_ready()
        yield made
    finally:
        made.stop()
