"""How many files of the package one start over HTTP passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

MAX_FILES = 50


def test_start_over_http_passes_few_files(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNE_")}
    traced = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "trace_run.py"), "--max-files", str(MAX_FILES)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert traced.returncode == 0, traced.stdout + traced.stderr
    assert traced.stdout.splitlines()[-1].endswith("functions")
