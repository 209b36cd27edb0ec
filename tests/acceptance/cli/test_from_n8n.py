"""The tutorial "From n8n" works as it is written."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from rune.cli.arguments import to_yaml
from tests.support.in_process_cli import InProcessCli

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "from-n8n.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"^\$ (rune .+)$", TEXT, re.MULTILINE)
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

    shown = TEXT.split(f"$ {IMPORT}\n")[1].split("```")[0]
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


def test_tutorial_run_with_the_gap_filled_gives_the_output_of_the_page(rune: InProcessCli) -> None:
    rune(*IMPORT.split()[1:])
    unfilled = rune("test", "test_orders.yaml")
    document = load("orders.yaml")
    places = {each["id"]: at for at, each in enumerate(document["nodes"])}
    document["nodes"][places["Total"]] = load("total.yaml")
    pathlib.Path("orders.yaml").write_text(to_yaml(document), encoding="utf-8")

    assert rune("check", "orders.yaml").exit_code == 0
    assert rune.json("run", "orders.yaml", "--input", INPUT)["output"] == {"Total": {"total": 26}}
    assert '`{"Total": {"total": 26}}`' in TEXT
    assert (unfilled.exit_code, "NOT_IMPORTED" in unfilled.output) == (1, True)
    assert rune("test", "test_orders.yaml").exit_code == 0


def test_tutorial_commands_are_those_of_this_test() -> None:
    assert [
        IMPORT,
        "rune graph orders.yaml",
        f"rune run orders.yaml --input '{INPUT}'",
        "rune check orders.yaml",
        f"rune run orders.yaml --input '{INPUT}'",
        "rune test test_orders.yaml",
    ] == COMMANDS


def load(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(pathlib.Path(name))
