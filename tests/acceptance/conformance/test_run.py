"""`rune run` of every case, with nodes run inline and queued separately."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load
from tests.acceptance.conformance.command import run
from tests.acceptance.conformance.expectations import deviations
from tests.acceptance.conformance.stubs import stub_servers

CASES = load()


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "travelling"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case_result_matches_expectation(
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
    with stub_servers(case) as servers:
        if case.smtp:
            monkeypatch.setenv("RUNE_SMTP_URL", servers.smtp_url)
        document.write_text(case.workflow_source(servers.base_url))
        observed = run(arguments, capsys)
    observed = dataclasses.replace(observed, calls=servers.http.calls, mails=tuple(servers.sink.mails))
    assert deviations(case, observed) == []
