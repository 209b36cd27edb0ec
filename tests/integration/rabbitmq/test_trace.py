"""The trace of a fan-out on RabbitMQ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.backends import stores
from tests.support.paths import ROOT
from tests.support.services.rabbitmq import broker


def test_trace_of_fan_out_names_the_files_that_it_passes(tmp_path: Path) -> None:
    settings = stores(tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNE_")}
    with broker().vhost() as vhost:
        environment |= {
            "RUNE_JOURNAL": settings.journal,
            "RUNE_STATE": settings.state,
            "RUNE_PREFIX": settings.prefix,
            "RUNE_QUEUE": broker().url(vhost),
        }
        traced = subprocess.run(
            [
                sys.executable,
                ROOT / "tools" / "trace_run.py",
                "--fan-out",
                "3",
            ],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert traced.returncode == 0, traced.stdout + traced.stderr
    assert "adapters/rabbitmq/publisher.py" in traced.stdout
