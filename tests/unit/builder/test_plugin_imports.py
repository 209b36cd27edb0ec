"""The code of the tutorials runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["python.md"])
def test_code_of_tutorial_runs(page: str) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)

    assert len(blocks) >= 5


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


def environment() -> dict[str, str]:
    """The environment with the package of this repository on the path."""
    return {**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}
