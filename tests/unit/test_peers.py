"""The table of `make bench-peers`: an engine that fails is named with the reason, and the others keep their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import run
from bench.peers.run import JOBS, InstallError, attempt, figures, table


def _raising(error: Exception) -> dict[str, float]:
    raise error


def test_table_has_a_row_of_figures_for_each_engine() -> None:
    complete = dict(zip(JOBS, (12_345.6, 99.94, 0.25, 7.0), strict=True))

    assert table({"Rune": complete, "Other": {"chain": 3.0}}).splitlines()[2:] == [
        "| Rune | 12,346 | 99.9 | 0.2 | 7.0 |",
        "| Other | 3.0 | no figure | no figure | no figure |",
    ]


def test_reason_of_a_failure_stays_within_its_cell() -> None:
    lines = table({"Other": "failed here: a | b\nc"}).splitlines()

    assert lines[-1] == "| Other | failed here: a \\| b c | | | |"
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InstallError("no such package"), "could not be installed here: no such package"),
        (OSError(28, "No space left on device"), "failed here: [Errno 28] No space left on device"),
        (subprocess.TimeoutExpired("npm", 9), "failed here: Command 'npm' timed out after 9 seconds"),
        (KeyError("job"), "failed here: 'job'"),
        (AssertionError(), "failed here: AssertionError"),
    ],
)
def test_engine_that_fails_is_listed_with_the_reason(error: Exception, reason: str) -> None:
    assert attempt("Other", lambda: _raising(error)) == reason


def test_program_that_cannot_be_started_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "measure_rune", lambda backend, scale: {"chain": 5_000.0})
    monkeypatch.setattr(run, "measure_peer", lambda name, scale: figures([str(tmp_path / "missing")], {}))
    written = tmp_path / "build" / "peers.md"
    monkeypatch.setattr(
        sys, "argv", ["run.py", "--only", "Celery", "Rune embedded", "--markdown", str(written)]
    )

    assert run.main() == 0
    text = written.read_text(encoding="utf-8")
    assert text.strip() == capsys.readouterr().out.strip()
    assert "| Celery | failed here: [Errno 2] No such file or directory" in text
    assert "| Rune embedded | 5,000 | no figure |" in text
