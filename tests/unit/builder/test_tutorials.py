"""The code of the tutorials runs as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rune.testing.case_runner import run_case
from rune.testing.cases import load_cases
from tests.support.paths import EXAMPLES

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECORDED = {
    "case": "orders as in x1",
    "document": {
        "id": "orders",
        "nodes": [
            {"id": "start", "type": "input"},
            {"id": "quote", "type": "http", "parameters": {"url": "https://shop.example/{{ $start.sku }}"}},
            {"id": "done", "type": "output", "parameters": {"value": "$quote.body"}},
        ],
        "edges": [{"src": "start", "dst": "quote"}, {"src": "quote", "dst": "done"}],
    },
    "input": {"sku": "a-7"},
    "mocks": {"quote": {"returns": {"status": 200, "body": 7}}},
    "expect": {"status": "completed", "output": 7},
}
"""What `rune record` writes of an execution."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["python.md"])
def test_code_of_tutorial_runs(page: str) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)

    assert len(blocks) >= 5


def test_tests_of_tutorial_pass(tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / "testing.md").read_text(encoding="utf-8"))
    (tmp_path / "test_tutorial.py").write_text("\n\n".join(blocks), encoding="utf-8")
    (tmp_path / "orders.json").write_text(json.dumps(RECORDED), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "rune.testing.plugin",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]

    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, env=environment()
    )

    assert found.returncode == 0, found.stdout
    assert "4 passed" in found.stdout


def test_yaml_tests_of_tutorial_pass(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```yaml\n(.*?)^```$", (DOCS / "testing.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "tests.yaml").write_text(block, encoding="utf-8")

    found = [run_case(each, EXAMPLES / "approval") for each in load_cases(tmp_path / "tests.yaml")]

    assert [each.deviations for each in found] == [(), ()]


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
