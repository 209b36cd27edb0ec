"""A transform of a million elements completes within the default limit of CPU time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli

ELEMENTS = 1_000_000
NODES = """
from rune.nodes.custom import node

@node("wide.list")
def wide(count: int) -> list[int]:
    return list(range(count))
"""
TRANSFORM = document(
    [
        node("start", "input"),
        node("wide", "wide.list", {"count": ELEMENTS}),
        # One transform for each node, because the limit applies to each.
        edit("tenths", "{{ len([x for x in $wide if x % 10 == 0]) }}"),
        edit("sums", "{{ [len($wide), sum($wide), max($wide)] }}"),
        node("out", "output", {"value": "{{ $sums.k + [-1 in $wide, $tenths.k] }}"}),
    ],
    "start>wide",
    "wide>tenths",
    "tenths>sums",
    "sums>out",
    id="wide",
)


def test_million_elements_are_transformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide_nodes.py").write_text(NODES)
    (tmp_path / "wide.json").write_text(json.dumps(TRANSFORM))
    rune = InProcessCli(tmp_path / "home")
    ended = rune.json("run", "wide.json", "--nodes", "wide_nodes")
    numbers = range(ELEMENTS)
    assert ended["status"] == "completed", ended["error"]
    assert ended["output"] == [ELEMENTS, sum(numbers), ELEMENTS - 1, False, ELEMENTS // 10]
