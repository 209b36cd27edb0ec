"""`rune import`: workflow, report, exit codes and refusals."""

from __future__ import annotations

import json
import pathlib

import pytest

from rune.documents.loader import load_document
from tests.support.in_process_cli import InProcessCli

CASES = pathlib.Path(__file__).resolve().parents[2] / "unit" / "importing" / "cases" / "canvas"


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
    assert "by hand workflow_data.nodes[3] → nodes[3]: agents have no counterpart" in result.stderr
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
