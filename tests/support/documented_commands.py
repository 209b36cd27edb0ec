"""Runs the shell commands of a documentation page."""

from __future__ import annotations

import os
import re
import subprocess

from tests.lint.tree import ROOT
from tests.support.cli_process import TIMEOUT_S


def run_documented_commands(page: str, heading: str, url: str) -> str:
    """Run the commands under a heading against a server and return their output."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"## {heading}")[1]
    lines = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert lines is not None
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines[1]],
        env={**os.environ, "RUNE_URL": url, "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout
