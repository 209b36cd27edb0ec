"""A folder of the store that cannot be read, or does not exist although it is named, is an error of every command that
reads: it is not an empty store."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from tests.support.in_process_cli import InProcessCli

READING = (
    ("list",),
    ("show", "x01"),
    ("watch", "x01"),
    ("items", "x01"),
    ("value", "x01"),
    ("explain", "x01"),
    ("logs", "x01"),
    ("verify", "--all"),
    ("waiting",),
    ("stats",),
    ("signal", "x01", "go"),
    ("cancel", "x01"),
    ("start", "orders"),
    ("workflows",),
    ("triggers", "list"),
    ("credentials", "list"),
    ("keys", "list"),
    ("audit-log",),
    ("dlq", "list"),
    ("bulk", "list"),
    ("prune", "--older-than", "1d"),
)
WRONG = ("missing", "file", "inside a file", "loop", "forbidden")


@pytest.fixture(params=WRONG)
def wrong(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> InProcessCli:
    """A command line whose RUNE_HOME is wrong."""
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "forbidden").mkdir()
    names = {"inside a file": "file/home"}
    home = tmp_path / names.get(request.param, request.param)
    if request.param == "forbidden":  # a superuser, who may run the tests, may read every folder
        access = os.access
        monkeypatch.setattr(
            "rune.bootstrap.sqlite.os.access", lambda path, mode: path != home and access(path, mode)
        )
    return InProcessCli(tmp_path / "unused", RUNE_HOME=str(home))


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_command_names_the_wrong_folder(wrong: InProcessCli, command: tuple[str, ...]) -> None:
    done = wrong(*command)
    as_json = wrong(*command, "--json")

    assert done.exit_code == 2, done.output
    assert "RUNE_HOME: " in done.stderr
    assert done.stdout == ""
    (problem,) = json.loads(as_json.stdout)["problems"]
    assert problem["code"] == "BAD_SETTINGS"


def test_doctor_names_the_wrong_folder(wrong: InProcessCli) -> None:
    (home,) = [
        each for each in json.loads(wrong("doctor", "--json").stdout)["checks"] if each["check"] == "home"
    ]

    assert home["verdict"] in {"warn", "bad"}
    assert "RUNE_HOME: " in home["found"]


def test_default_folder_and_new_folder_have_no_executions_yet(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNE_HOME", raising=False)
    assert InProcessCli(tmp_path / "new").output("list") == "no executions\n"
    assert InProcessCli(tmp_path / "unused", RUNE_HOME=".rune").output("list") == "no executions\n"


def test_writing_command_creates_the_folder(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"id": "one", "nodes": [{"id": "start", "type": "input"}]}))
    rune = InProcessCli(tmp_path / "unused", RUNE_HOME=str(tmp_path / "made" / "here"))

    rune.json("deploy", str(file))

    assert [each["workflow_id"] for each in rune.json("workflows")["workflows"]] == ["one"]
