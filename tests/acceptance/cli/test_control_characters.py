"""Texts of documents and nodes reach the terminal without control characters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.cli_process import Rune
from tests.support.documents import document, node
from tests.support.paths import ROOT, SOURCE, python_path

ODD = "odd\n\x00\x1b[2J\x9b"
SHOWN = "odd \ufffd\ufffd[2J\ufffd"
FAILS = document([node("in", "input"), node("bad", "bad.coded")], "in>bad", id="fails")
WRONG_ID = document([node("in", "input"), node(ODD, "noop")], id="wrong")
EXPORT = {
    "name": "export",
    "nodes": [
        {"name": "Start", "type": "n8n-nodes-base.manualTrigger", "typeVersion": 1, "parameters": {}},
        {"name": ODD, "type": f"n8n-nodes-base.{ODD}", "typeVersion": 1, "parameters": {}},
    ],
    "connections": {"Start": {"main": [[{"node": ODD, "type": "main", "index": 0}]]}},
}


@pytest.fixture
def rune(tmp_path: Path) -> Rune:
    for name, raw in (("fails", FAILS), ("wrong", WRONG_ID), ("export", EXPORT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(raw))
    nodes = "tests.integration.embedded.bad_nodes"
    return Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, ROOT), RUNE_NODES=nodes)


def assert_shown_on_one_line(text: str) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), repr(text)
    assert SHOWN in text
    assert not any(line.endswith("odd") for line in text.splitlines()), text


def test_code_of_failure_is_shown_on_one_line(rune: Rune, tmp_path: Path) -> None:
    run = rune("run", str(tmp_path / "fails.json"), "--id", "fails-1")
    assert_shown_on_one_line(run.stdout)
    assert_shown_on_one_line(rune("show", "fails-1").stdout)
    assert_shown_on_one_line(rune("explain", "fails-1").stdout)


@pytest.mark.parametrize(("command", "file"), [("check", "wrong"), ("run", "wrong"), ("import", "export")])
def test_names_in_documents_are_shown_on_one_line(
    command: str, file: str, rune: Rune, tmp_path: Path
) -> None:
    done = rune(command, str(tmp_path / f"{file}.json"))
    assert_shown_on_one_line(done.stderr if command != "check" else done.stdout)
