"""`rune import`: workflow, report, exit codes and refusals."""

from __future__ import annotations

import json
import pathlib

import pytest

from rune.documents.loader import load_document
from tests.support.in_process_cli import InProcessCli

CASES = pathlib.Path(__file__).resolve().parents[2] / "unit" / "importers" / "cases" / "canvas"


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> InProcessCli:
    return InProcessCli(tmp_path / "home")


def test_import_of_fully_carried_document_exits_0_and_prints_yaml(rune: InProcessCli) -> None:
    result = rune("import", str(CASES / "price-check.json"))

    assert result.exit_code == 0, result.output
    assert load_document(result.stdout, "yaml").problems == ()
    assert result.stdout.startswith("id: price-check\nname: Price check\n")
    assert "by hand" not in result.stderr


def test_import_with_gaps_exits_1_and_lists_them(rune: InProcessCli) -> None:
    result = rune("import", str(CASES / "campaign-review.json"))

    assert result.exit_code == 1
    assert "by hand Classify (workflow_data.nodes[3] → nodes[3]): agents have no counterpart" in result.stderr
    assert "2 changed, 2 by hand" in result.stderr


def test_import_writes_document_and_report_to_files(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    out, report = tmp_path / "out.yaml", tmp_path / "report.json"

    result = rune("import", str(CASES / "routing.json"), "-o", str(out), "--report", str(report))

    assert result.stdout == ""
    assert rune.output("check", str(out)).startswith("✓")
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["format"] == "canvas"
    assert found["complete"] is False
    assert found["counts"]["approximated"] == 1
    assert {"source", "status"} <= found["entries"][0].keys()


def test_imported_document_runs(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.json"
    rune("import", str(CASES / "routing.json"), "-o", str(out))

    found = rune.json("run", str(out), "--input", '{"country": "FR", "amount": 5000}')

    assert found["context"]["$Large"] == "large: 5000"


def test_import_with_json_prints_document_and_report(rune: InProcessCli) -> None:
    found = rune.json("import", str(CASES / "price-check.json"), "--from", "canvas")

    assert found["document"]["id"] == "price-check"
    assert found["complete"] is True
    assert found["problems"] == []


def test_import_reads_standard_input(rune: InProcessCli) -> None:
    result = rune("import", "-", stdin=(CASES / "price-check.json").read_text(encoding="utf-8"))

    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("{", (), "not JSON"),
        ('{"a": 1}', (), "the format of the document is unknown"),
        (
            '{"nodes": [], "edges": [{"source": "a", "target": "b"}]}',
            ("--from", "bpmn"),
            "`bpmn` is not a format",
        ),
    ],
)
def test_refused_document_exits_2_with_the_reason(
    rune: InProcessCli, tmp_path: pathlib.Path, text: str, options: tuple[str, ...], reason: str
) -> None:
    file = tmp_path / "x.json"
    file.write_text(text, encoding="utf-8")

    result = rune("import", str(file), *options)
    as_json = rune.json("import", str(file), *options, code=2)

    assert result.exit_code == 2
    assert reason in result.stderr
    assert as_json["status"] == "invalid"
    assert reason in as_json["problems"][0]["message"]


def test_missing_file_exits_2(rune: InProcessCli) -> None:
    result = rune("import", "nowhere.json")

    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_pinned_data_becomes_a_test_that_passes(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    source, out, tests = (
        tmp_path / each for each in ("export.json", "flows/orders.yaml", "tests/orders.yaml")
    )
    for each in (out, tests):
        each.parent.mkdir()
    nodes = [
        {"name": "Start", "type": "n8n-nodes-base.manualTrigger", "parameters": {}},
        {
            "name": "Fetch",
            "type": "n8n-nodes-base.httpRequest",
            "typeVersion": 4.2,
            "parameters": {"url": "=https://shop.example/{{ $json.sku }}", "options": {}},
        },
    ]
    links = {"Start": {"main": [[{"node": "Fetch", "type": "main", "index": 0}]]}}
    pins = {"Start": [{"json": {"sku": "a-7"}}], "Fetch": [{"json": {"price": 7}}]}
    export = {"name": "Orders", "nodes": nodes, "connections": links, "pinData": pins}
    source.write_text(json.dumps(export), encoding="utf-8")

    imported = rune("import", str(source), "-o", str(out), "--tests", str(tests))

    assert "by hand" not in imported.stderr
    assert tests.read_text(encoding="utf-8").startswith(
        "case: pinned data of Orders\nworkflow: ../flows/orders.yaml\n"
    )
    assert rune("test", str(tests)).exit_code == 0
    tests.write_text(tests.read_text(encoding="utf-8").replace("completed", "failed"), encoding="utf-8")
    assert rune("test", str(tests)).exit_code == 1


def test_tests_without_pinned_data_are_not_written(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    tests = tmp_path / "tests.yaml"

    result = rune("import", str(CASES / "price-check.json"), "--tests", str(tests))

    assert (result.exit_code, tests.exists()) == (0, False)
    assert f"{tests} was not written: the document has no pinned data" in result.stderr
