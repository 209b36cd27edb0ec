"""`rune check` rejects the invalid documents of all cases and accepts all others."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.acceptance.conformance.case import Case, load
from tests.acceptance.conformance.command import check
from tests.acceptance.conformance.expectations import deviations

UNUSED_URL = "http://127.0.0.1:9"
INVALID = [case for case in load() if case.refused == "document"]
VALID = [case for case in load() if case.refused != "document"]


def write_document(case: Case, folder: pathlib.Path) -> pathlib.Path:
    path = folder / f"{case.name}.{case.suffix}"
    path.write_text(case.workflow_source(UNUSED_URL), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.name)
def test_invalid_document_is_rejected_with_problems(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = deviations(case, check(write_document(case, tmp_path), capsys))

    assert not found, "\n".join(found)


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_other_documents_are_valid(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = check(write_document(case, tmp_path), capsys)

    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "valid"), seen.stdout


def test_cli_module_runs_as_script(tmp_path: pathlib.Path) -> None:
    document = {"id": "loop", "nodes": [{"id": "a", "type": "noop"}], "edges": [{"src": "a", "dst": "a"}]}
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(document), encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-m", "rune.cli.main", "check", str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2, ran.stderr
    assert json.loads(ran.stdout)["status"] == "invalid"
