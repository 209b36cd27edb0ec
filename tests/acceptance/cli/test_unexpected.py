"""No command ends in a traceback: neither on an exception that nobody expects, nor with a home that is unusable."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rune.cli import main as entry
from rune.cli.main import COMMANDS, load_command
from tests.support.help_examples import help_examples, words_of, write_files
from tests.support.paths import SOURCE, python_path

pytestmark = pytest.mark.long

EXIT_CODES = {0, 1, 2, 3, 4, 130, 143}
MESSAGE = "the state of the barrier is negative"


def commands() -> dict[str, Any]:
    """Every command and subcommand by its words."""
    found: dict[str, Any] = {}

    def add(words: str, command: Any) -> None:
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            found[words] = command
        for name, each in below.items():
            add(f"{words} {name}", each)

    for name in COMMANDS:
        add(name, load_command(name))
    return found


ALL = commands()
EXAMPLES = [
    words_of(each)
    for each in help_examples()
    if not re.search(r"rune (up|serve|bench|migrate|test|stubs)", each)
]
"""Calls of commands with arguments that their parsers accept. Those of the others need no home, or do not end."""


@pytest.fixture(autouse=True)
def reports(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of reports; every command runs in an empty folder."""
    folder = tmp_path / "reports"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `rune` as its script does; return the exit code."""
    monkeypatch.setattr("sys.argv", ["rune", *arguments])
    try:
        entry.main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0


@pytest.mark.parametrize("command", ALL)
def test_unexpected_exception_of_a_command_is_one_sentence_and_a_report(
    command: str,
    reports: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ArithmeticError(MESSAGE)

    target = ALL[command]
    monkeypatch.setattr(target, "callback", fail)
    for each in target.params:
        monkeypatch.setattr(each, "required", False)

    code = run(monkeypatch, *command.split())

    out, err = capsys.readouterr()
    (report,) = reports.iterdir()
    assert (code, out) == (70, "")
    assert err.splitlines() == [
        f"rune: unexpected error, a defect of Rune: ArithmeticError: {MESSAGE}; the details are in {report}"
        " (RUNE_TRACEBACK=1 prints them)"
    ]
    assert "Traceback" in report.read_text()
    assert f"command: {command.split(maxsplit=1)[0]}" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600


def test_traceback_is_printed_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ArithmeticError(MESSAGE)

    monkeypatch.setattr("rune.cli.backend.load_settings", fail)
    monkeypatch.setenv("RUNE_TRACEBACK", "1")

    assert run(monkeypatch, "list", "--json") == 70
    out, err = capsys.readouterr()
    (problem,) = json.loads(out)["problems"]
    assert (problem["code"], MESSAGE in problem["message"]) == ("INTERNAL", True)
    assert "Traceback" in err


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
def test_unexpected_exception_of_the_backend_is_no_traceback(
    example: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    def fail(*_: Any) -> None:
        raise ArithmeticError(MESSAGE)

    write_files(tmp_path)
    monkeypatch.setattr("rune.bootstrap._backend", fail)

    code = run(monkeypatch, *example)

    out, err = capsys.readouterr()
    assert code in EXIT_CODES | {70}, err
    assert "Traceback" not in out + err
    assert code != 70 or MESSAGE in err


def too_long(home: pathlib.Path) -> pathlib.Path:
    return home / ("n" * 300)


def file_in_place(home: pathlib.Path) -> pathlib.Path:
    home.write_text("no folder")
    return home


def loop(home: pathlib.Path) -> pathlib.Path:
    home.symlink_to(home)
    return home


def garbage(home: pathlib.Path) -> pathlib.Path:
    home.mkdir()
    (home / "rune.db").write_bytes(b"garbage" * 1000)
    return home


def folder_as_file(home: pathlib.Path) -> pathlib.Path:
    (home / "rune.db").mkdir(parents=True)
    return home


def empty(home: pathlib.Path) -> pathlib.Path:
    home.mkdir()
    (home / "rune.db").touch()
    return home


HOMES = (too_long, file_in_place, loop, garbage, folder_as_file, empty)


@pytest.mark.parametrize("damage", HOMES, ids=lambda each: each.__name__)
def test_home_that_cannot_be_used_is_one_sentence(
    damage: Callable[[pathlib.Path], pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reports: pathlib.Path,
) -> None:
    write_files(tmp_path)
    monkeypatch.setenv("RUNE_HOME", str(damage(tmp_path / "home")))
    wrong = {}
    for example in EXAMPLES:
        if "--wait" in example:
            continue
        code = run(monkeypatch, *example)
        out, err = capsys.readouterr()
        if code not in EXIT_CODES or "Traceback" in out + err:
            wrong[" ".join(example)] = (code, err)

    assert wrong == {}
    assert list(reports.iterdir()) == []


IMPORTING = {"run", "deploy", "workflows", "keys", "credentials", "handlers"}
"""Commands that run nodes, or that change the stores and own the file meanwhile. All others only read, perhaps in a
checkout from anywhere."""


def test_only_commands_that_run_or_change_something_import_the_modules_of_rune_toml(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    (tmp_path / "rune.toml").write_text('nodes = ["tests.support.raising_nodes"]\n', encoding="utf-8")
    importing = {}
    for example in EXAMPLES:
        if "--wait" in example:
            continue
        run(monkeypatch, *example)
        out, err = capsys.readouterr()
        if "the module was imported" in out + err:
            importing[example[0]] = example

    assert importing.keys() - IMPORTING == set(), importing
    assert "import" in {example[0] for example in EXAMPLES}


@pytest.fixture
def foreign_home() -> Iterator[pathlib.Path]:
    """A home of this user, in a folder that nobody else may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        pathlib.Path(folder).chmod(0o711)
        home = pathlib.Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "rune.db").touch(mode=0o600)
        yield home


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("stats",),
        ("doctor",),
        ("show", "x"),
        ("run", "examples/hello", "--input", '{"name": "Ada", "hour": 9}'),
    ],
)
def test_home_of_another_user_is_one_sentence(command: tuple[str, ...], foreign_home: pathlib.Path) -> None:
    if os.geteuid() == 0:
        other: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    else:
        foreign_home.parent.chmod(0o500)
        foreign_home.chmod(0o000)
        other = {}
    done = subprocess.run(
        [sys.executable, "-m", "rune.cli.main", *command],
        env={"PATH": "", "PYTHONPATH": python_path(SOURCE), "RUNE_HOME": str(foreign_home), "HOME": "/"},
        cwd=SOURCE.parent,
        capture_output=True,
        text=True,
        check=False,
        **other,
    )
    if not other:
        foreign_home.parent.chmod(0o700)
        foreign_home.chmod(0o700)

    assert "Traceback" not in done.stderr
    assert "permission denied" in (done.stderr + done.stdout).lower()
    assert done.returncode in (1, 2, 3)
