"""The table of `make bench-peers`: an engine that fails is named with the reason, and the others keep their figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import run
from bench.peers.install import PEERS, InstallError, reason
from bench.peers.processes import Budget, TimeUsedUpError, run_limited
from bench.peers.run import BEGIN, END, JOBS, attempt, figures, replaced, table
from tests.lint.tree import ROOT
from tests.support.cli_process import until


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


@pytest.fixture
def without_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Engines that need no installation: Rune has a figure, Celery cannot be started, n8n cannot be installed."""

    def install(name: str, seconds: float) -> Path:
        if name == "n8n":
            raise InstallError("npm is not installed")
        return tmp_path / "missing"

    monkeypatch.setattr(run, "install", install)
    monkeypatch.setattr(run, "version", lambda name: "5.7")
    monkeypatch.setattr(
        run, "measure_rune", lambda backend, scale, seconds: {"chain": 5_000.0, "chain-limit": 9_000.0}
    )
    monkeypatch.setattr(
        run, "measure_peer", lambda name, program, scale, seconds: figures([str(program)], {}, seconds)
    )
    page = tmp_path / "page.md"
    page.write_text(f"# Above\n\n{BEGIN}\nold\n\n{END}\n# Below\n", encoding="utf-8")
    return page


def _main(page: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    written = page.parent / "build" / "peers.md"
    monkeypatch.setattr(sys, "argv", ["run.py", *words, "--markdown", str(written), "--page", str(page)])
    assert run.main() == 0
    return written.read_text(encoding="utf-8")


def test_engines_that_fail_are_listed_and_do_not_end_the_run(
    without_engines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _main(without_engines, monkeypatch, "--only", "Celery", "n8n", "Rune embedded")

    assert text.strip() == capsys.readouterr().out.strip()
    assert "| Celery | failed here: [Errno 2] No such file or directory" in text
    assert "| n8n | could not be installed here: npm is not installed | | | |" in text
    assert "| Rune embedded | 5,000 | no figure |" in text
    assert "| Rune embedded: limit | 9,000 | no figure |" in text


def test_whole_run_replaces_the_table_of_the_page(
    without_engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _main(without_engines, monkeypatch)

    assert without_engines.read_text(encoding="utf-8") == f"# Above\n\n{BEGIN}\n{text}\n{END}\n# Below\n"
    assert text.count("\n| ") == 1 + 3 * 2 + 4, "a heading, three backends with limits, four other engines"
    assert re.match(r"`make bench-peers` of 20\d\d-\d\d-\d\d, one run: \d+ cores \(\w+\), CPython \d", text)
    assert "Versions: Celery 5.7, DBOS 5.7, Prefect 5.7." in text


@pytest.mark.parametrize("words", [("--scale", "0.1"), ("--only", "Celery")])
def test_part_of_a_run_leaves_the_page_as_it_is(
    words: tuple[str, ...], without_engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = without_engines.read_text(encoding="utf-8")

    text = _main(without_engines, monkeypatch, *words)

    assert without_engines.read_text(encoding="utf-8") == before
    assert ("jobs scaled by 0.1" in text) == ("0.1" in words)


def test_page_of_the_benchmarks_has_a_place_for_the_table() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")

    assert replaced(page, "the table\n").count("the table\n\n<!-- make") == 1
    for name in (*run.RUNE, *PEERS):
        assert f"\n| {name} | " in page.split(BEGIN)[1].split(END)[0]


def test_reason_of_a_program_that_fails_is_its_last_line() -> None:
    script = "import sys; print('Traceback', file=sys.stderr); sys.exit('the server ended with 3')"

    with pytest.raises(RuntimeError, match=r"^exit code 1: the server ended with 3$"):
        figures([sys.executable, "-c", script], {}, 60)


def test_program_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"sleep 600 & echo $! > {started}.new; mv {started}.new {started}; wait"

    with pytest.raises(TimeUsedUpError, match="took longer than 2 s"):
        run_limited(["sh", "-c", script], 2)

    until(lambda: not Path(f"/proc/{started.read_text().strip()}/fd").exists() or None, "the child has ended")


def test_time_of_a_run_is_shared_by_its_programs() -> None:
    assert Budget(100).part(30) == 30
    assert 0 < Budget(20).part(30) <= 20
    with pytest.raises(TimeUsedUpError, match="used up"):
        Budget(0).part(30)


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "npm warn a\nnpm error code ENOTFOUND\nnpm error network request to https://x failed, reason: b\n"
            "npm error A complete log of this run can be found in: /x\n",
            "network request to https://x failed, reason: b",
        ),
        ("npm error code E404\n", "code E404"),
        (
            "Collecting x\nERROR: No matching distribution found for x\n",
            "ERROR: No matching distribution found for x",
        ),
        ("", ""),
    ],
)
def test_reason_of_a_failed_installation_is_the_line_that_explains_it(printed: str, line: str) -> None:
    assert reason(printed) == line
