"""The code of the tutorials runs as it stands."""

from __future__ import annotations

import re
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
