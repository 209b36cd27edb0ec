"""Every case that needs no network, through `rune run`, with nodes run in place and each on its own."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.conformance.case import Case, expand, load
from tests.conformance.command import run
from tests.conformance.verdict import complaints


def _needs_network(case: Case) -> bool:
    text = case.text if case.text is not None else json.dumps(expand(case.document))
    return case.smtp or any(f'"type": "{kind}"' in text for kind in ("http", "call_external_service", "smtp"))


CASES = [case for case in load() if not _needs_network(case)]


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "travelling"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_ends_as_it_must(
    case: Case,
    in_place: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNE_DURABILITY", "relaxed")
    document = tmp_path / f"workflow.{case.suffix}"
    document.write_text(case.workflow_source("http://127.0.0.1:9"))
    payload = tmp_path / "input.json"
    payload.write_text(case.input_source())
    arguments = [
        str(document),
        "--input",
        f"@{payload}",
        "--json",
        "--in-place" if in_place else "--no-in-place",
    ]
    if case.fake_time:
        arguments.append("--fake-time")
    assert complaints(case, run(arguments, capsys)) == []
