"""The fixtures know the custom node types of the settings, as `rune test` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TYPES = '''
from rune import NodeContext, node


@node("acme.twice")
def twice(ctx: NodeContext, n: int) -> int:
    """Doubles a number."""
    return 2 * n
'''
FLOW = """
id: doubled
nodes:
  - {id: start, type: input}
  - {id: act, type: acme.twice, parameters: {n: $start.n}}
  - {id: done, type: output, parameters: {value: $act}}
edges: [{src: start, dst: act}, {src: act, dst: done}]
"""
TESTS = """
import pytest


@pytest.mark.parametrize("fixture", ["rune_engine", "rune_crash"])
def test_doubled(fixture, request, rune_mocks):
    rune_mocks.node("act").runs()
    run = request.getfixturevalue(fixture).run("doubled.yaml", {"n": 4})
    assert (run.status, run.output) == ("completed", 8)


def test_doubled_by_client(rune_client, rune_engine, rune_mocks):
    rune_mocks.node("act").runs()
    rune_engine.deploy("doubled.yaml")
    started = rune_client.start("doubled", {"n": 4})
    rune_engine.settle()
    assert rune_client.output(started.execution_id) == 8
"""


@pytest.mark.parametrize("named", ["environment", "file"])
def test_fixtures_know_the_types_of_the_modules_that_the_settings_name(named: str, tmp_path: Path) -> None:
    (tmp_path / "acme_types.py").write_text(TYPES, encoding="utf-8")
    (tmp_path / "doubled.yaml").write_text(FLOW, encoding="utf-8")
    (tmp_path / "test_doubled.py").write_text(TESTS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    if named == "environment":
        environment["RUNE_NODES"] = "acme_types"
    else:
        (tmp_path / "rune.toml").write_text('nodes = ["acme_types"]\n', encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert "3 passed" in done.stdout, done.stdout
