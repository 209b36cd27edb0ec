"""Every conformance document through `rune check`: refused ones are refused as stated, all others pass."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.acceptance.conformance.case import Case, load
from tests.acceptance.conformance.command import check
from tests.acceptance.conformance.verdict import complaints

NOBODY = "http://127.0.0.1:9"
REFUSED = [case for case in load() if case.refused == "document"]
VALID = [case for case in load() if case.refused != "document"]


def written(case: Case, folder: pathlib.Path) -> pathlib.Path:
    path = folder / f"{case.name}.{case.suffix}"
    path.write_text(case.workflow_source(NOBODY), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_wrong_document_is_refused_with_its_problems(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = complaints(case, check(written(case, tmp_path), capsys))

    assert not found, "\n".join(found)


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_every_other_document_is_valid(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = check(written(case, tmp_path), capsys)

    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "valid"), seen.stdout


def test_the_module_is_a_command(tmp_path: pathlib.Path) -> None:
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
