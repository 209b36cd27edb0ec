"""A test run that is killed leaves no process and no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_process import until
from tests.support.paths import ROOT
from tests.support.services.keeper import RUN

pytestmark = pytest.mark.long

PROCESSES = 2


def reports(folder: Path, run: subprocess.Popen[bytes]) -> list[dict[str, Any]] | None:
    assert run.poll() is None, (folder / "output").read_text()
    found = [json.loads(each.read_text()) for each in folder.glob("*.json")]
    return found if len(found) == PROCESSES else None


def left(found: list[dict[str, Any]]) -> Iterator[str]:
    for report in found:
        yield from (each for each in report["folders"] if Path(each).exists())
        yield from (str(each) for each in report["processes"] if Path(f"/proc/{each}").exists())


def test_killed_run_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    del environment[RUN]
    environment["KILLED_RUN_REPORT"] = str(tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        f"cache_dir={tmp_path}/cache",
        "-n",
        str(PROCESSES),
    ]
    with (
        (tmp_path / "output").open("w") as output,
        subprocess.Popen(
            [*command, "--dist=each", "tests/chaos/killed_run.py"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        ) as run,
    ):
        found = until(lambda: reports(tmp_path, run), "each test process has started its servers")
        run.kill()

    assert len({each for report in found for each in report["processes"]}) > 2 * PROCESSES
    until(lambda: None if [*left(found)] else True, "nothing of the run is left")
