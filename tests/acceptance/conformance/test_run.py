"""Every case through `rune run`, with nodes run in place and each on its own."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load
from tests.acceptance.conformance.command import run
from tests.acceptance.conformance.stubs import surroundings
from tests.acceptance.conformance.verdict import complaints

CASES = load()


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
    monkeypatch.setenv("RUNE_HTTP_ALLOW", "127.0.0.1")
    document = tmp_path / f"workflow.{case.suffix}"
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
    with surroundings(case) as around:
        if case.smtp:
            monkeypatch.setenv("RUNE_SMTP_URL", around.smtp_url)
        document.write_text(case.workflow_source(around.base_url))
        seen = run(arguments, capsys)
    seen = dataclasses.replace(seen, calls=around.http.calls, mails=tuple(around.sink.mails))
    assert complaints(case, seen) == []
