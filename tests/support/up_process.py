"""`rune up` as a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cli_process import TIMEOUT_S
from tests.support.paths import SOURCE, python_path


class UpProcess:
    """A server that can be killed and started again on the same port."""

    def __init__(self, home: Path, **environment: str) -> None:
        path = python_path(SOURCE)
        quiet = {"RUNE_RUN_EXAMPLE": "false"}  # most tests count executions
        self._environment = {**os.environ, "PYTHONPATH": path, "RUNE_HOME": str(home), **quiet, **environment}
        self.port = 0
        self.said: dict[str, Any] = {}

    def start(self, *options: str) -> str:
        self.process = subprocess.Popen(
            [
                "env", "--default-signal=INT,TERM", sys.executable, "-m", "rune.cli.commands.serve",
                "--port", str(self.port), "--json", *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith('{"url"'):
            return line
        self.said = json.loads(line)
        self.port = int(self.said["url"].rsplit(":", 1)[1])
        return str(self.said["url"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode
