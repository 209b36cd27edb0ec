"""The pytest plugin costs nothing while no test uses it, and the builder loads what it needs to write a workflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_plugin_imports_nothing_of_the_engine() -> None:
    code = (
        "import pytest, sys, rune.testing.plugin; "
        "print([name for name in sys.modules if name.startswith('rune.')])"
    )

    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment(),
    )

    assert found.stdout.strip() == "['rune.testing', 'rune.testing.plugin']"


def test_builder_loads_neither_the_event_loop_nor_patterns() -> None:
    code = (
        "import sys, rune.build; "
        "unused = ('asyncio', 're2', 'rune.nodes.named_secrets', 'rune.runtime'); "
        "print([each for each in unused if each in sys.modules])"
    )

    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )

    assert found.stdout.strip() == "[]"


def environment() -> dict[str, str]:
    """The environment with the package of this repository on the path."""
    return {**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}
