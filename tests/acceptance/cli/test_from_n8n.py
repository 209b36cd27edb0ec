"""What the tutorial "From n8n" states beside its commands, which are followed with those of the other tutorials."""

from __future__ import annotations

import pathlib
import re
import runpy
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.in_process_cli import InProcessCli

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "from-n8n.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", TEXT, re.DOTALL))
IMPORT = "rune import orders.json -o orders.yaml --report report.json --tests test_orders.yaml"
INPUT = '{"lines": [{"price": 2, "count": 3}, {"price": 5, "count": 4}]}'


@pytest.fixture
def rune(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> InProcessCli:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return InProcessCli(tmp_path / "home")


def test_tutorial_import_prints_what_the_page_shows(rune: InProcessCli) -> None:
    result = rune(*IMPORT.split()[1:])

    shown = TEXT.split(f"$ {IMPORT}  # exits 1\n")[1].split("```")[0]
    assert result.exit_code == 1
    assert result.stderr == shown


def test_tutorial_graph_has_the_nodes_of_the_table(rune: InProcessCli) -> None:
    rune("import", "orders.json", "-o", "orders.yaml")

    drawn = rune.output("graph", "orders.yaml")

    named = ("Start", "Lines", "Sum_items", "Sum", "Sum_results", "Collect", "Total")
    assert [each["id"] for each in load("orders.yaml")["nodes"]] == list(named)
    assert [each for each in named if not re.search(rf"\b{each}\b", drawn)] == []


def test_tutorial_run_ends_at_the_gap(rune: InProcessCli) -> None:
    rune("import", "orders.json", "-o", "orders.yaml")

    found = rune.json("run", "orders.yaml", "--input", INPUT, code=1)

    assert found["error"]["code"] == "NOT_IMPORTED"
    assert found["context"]["$Collect"] == {"sum": [6, 20]}


def test_tutorial_program_makes_the_node_that_the_page_shows(rune: InProcessCli) -> None:
    rune(*IMPORT.split()[1:])
    before = load("orders.yaml")

    runpy.run_path("fill.py")

    after = load("orders.yaml")
    assert after["nodes"][-1] == load("total.yaml")
    assert after["nodes"][:-1] == before["nodes"][:-1]
    assert after["edges"] == [*before["edges"][:-1], {"src": "Collect", "dst": "Total"}]
    assert rune.json("run", "orders.yaml", "--input", INPUT)["output"] == {"Total": {"total": 26}}


def load(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(pathlib.Path(name))
