"""Every conformance document through `rune check`: refused ones are refused as stated, all others pass."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.conformance.case import Case, load
from tests.conformance.verdict import Observed, complaints

NOBODY = "http://127.0.0.1:9"


def check(case: Case, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Observed:
    """What `rune check FILE --json` says of the case's document, run in this process."""
    from rune.cli.main import main

    path = folder / f"{case.name}.{case.suffix}"
    path.write_text(case.workflow_source(NOBODY), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["rune", "check", str(path), "--json"])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
    code = ended.value.code
    out, err = capsys.readouterr()
    return Observed(
        exit_code=code if isinstance(code, int) else int(code is not None), stdout=out, stderr=err
    )


@pytest.mark.parametrize(
    "case", [case for case in load() if case.refused == "document"], ids=lambda case: case.name
)
def test_a_wrong_document_is_refused_with_its_problems(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = complaints(case, check(case, tmp_path, capsys))

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "case", [case for case in load() if case.refused != "document"], ids=lambda case: case.name
)
def test_every_other_document_is_valid(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = check(case, tmp_path, capsys)

    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "valid"), seen.stdout


def test_the_module_is_a_command(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "loop.json"
    path.write_text(
        json.dumps(
            {"id": "loop", "nodes": [{"id": "a", "type": "noop"}], "edges": [{"src": "a", "dst": "a"}]}
        )
    )

    ran = subprocess.run(
        [sys.executable, "-m", "rune.cli.main", "check", str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2, ran.stderr
    assert json.loads(ran.stdout)["status"] == "invalid"
