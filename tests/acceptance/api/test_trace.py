"""The trace of one start over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_trace_of_start_over_http_names_the_files_that_it_passes(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNE_")}
    traced = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "trace_run.py")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert traced.returncode == 0, traced.stdout + traced.stderr
    assert "server/routes/executions/executions.py" in traced.stdout
    assert traced.stdout.splitlines()[-1].endswith("functions")
