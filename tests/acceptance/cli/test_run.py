"""`rune run`: output, exit codes and arguments."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.cli_process import Rune, interpreted
from tests.support.documents import document, node

ADD = document(
    [node("a", "input"), node("b", "output", parameters={"value": "{{ $trigger.n + 1 }}"})], "a>b", id="add"
)
HALTS = document(
    [node("a", "input"), node("b", "fail", parameters={"message": "no \x1b[2J way"})], "a>b", id="halts"
)


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    return Rune(tmp_path / "home")


@pytest.fixture
def add(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "add.json"
    path.write_text(json.dumps(ADD))
    return str(path)


def test_run_prints_nodes_and_output(rune: Rune, add: str) -> None:
    done = rune("run", add, "--input", '{"n": 41}')

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["node", "item", "status", "attempts", "took", "error"]
    assert lines[2].split()[:3] == ["b", "success", "1"]
    assert "completed" in lines[4]
    assert lines[-1] == "42"


def test_json_is_one_document(rune: Rune, add: str) -> None:
    result = rune.json("run", add, "--input", '{"n": 1}')

    assert (result["status"], result["output"], result["workflow_id"]) == ("completed", 2, "add")
    assert [each["node_id"] for each in result["nodes"]] == ["a", "b"]


def test_pinned_node_is_not_called(rune: Rune, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "halts.json"
    path.write_text(json.dumps(HALTS))
    (tmp_path / "given.json").write_text('{"x": [1]}')

    result = rune.json("run", str(path), "--pin", f"b=@{tmp_path / 'given.json'}")
    shown = rune("run", str(path), "--pin", "b=7").stdout

    assert (result["status"], result["output"]) == ("completed", {"b": {"x": [1]}})
    assert [each.get("pinned", False) for each in result["nodes"]] == [False, True]
    assert next(line for line in shown.splitlines() if line.startswith("b ")).endswith("output pinned")


def test_failure_exits_1_without_terminal_escapes(rune: Rune, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "halts.json"
    path.write_text(json.dumps(HALTS))

    done = rune("run", str(path))

    assert done.returncode == 1
    assert "halted" in done.stdout
    assert "\x1b" not in done.stdout


def test_folder_resolves_to_its_workflow(rune: Rune, tmp_path: pathlib.Path) -> None:
    for name in ("add", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "add" / "add.json").write_text(json.dumps(ADD))
    (tmp_path / "other" / "workflow.json").write_text(json.dumps(ADD))

    assert rune.json("run", str(tmp_path / "add"), "--input", '{"n": 1}')["output"] == 2
    assert rune.json("run", str(tmp_path / "other"), "--input", '{"n": 2}')["output"] == 3
    assert rune("check", str(tmp_path / "add")).returncode == 0


def test_folder_needs_exactly_one_workflow(rune: Rune, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    (problem,) = rune.json("run", str(folder), code=2)["problems"]
    assert "contains no workflow" in problem["message"]

    for name in ("empty.json", "empty.yaml"):
        (folder / name).write_text(json.dumps(ADD))
    (problem,) = rune.json("run", str(folder), code=2)["problems"]
    assert "`empty.yaml`, `empty.json`" in problem["message"]


def test_id_and_labels_are_stored_and_id_is_unique(rune: Rune, add: str) -> None:
    arguments = (
        "run",
        add,
        "--input",
        '{"n": 1}',
        "--id",
        "order-7",
        "--label",
        "team=a=b",
        "--label",
        "env=test",
    )

    assert rune.json(*arguments)["execution_id"] == "order-7"
    (listed,) = rune.json("list")["executions"]
    assert (listed["execution_id"], listed["labels"]) == ("order-7", {"team": "a=b", "env": "test"})
    (problem,) = rune.json(*arguments, code=2)["problems"]
    assert problem["code"] == "DUPLICATE_ID"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "{"], "JSON"),
        (["--input", "@missing.json"], "no such file"),
        (["--label", "novalue"], "name=value"),
        (["--id", "a b"], "letters, digits"),
        (["--pin", "b"], "node=JSON"),
        (["--pin", "b={"], "JSON"),
        (["--pin", "c=1"], "no node `c`"),
        (["--pin", "b=1", "--outlet", "b=true"], "no outlet `true`"),
        (["--nodes", "no_such_module"], "cannot be imported"),
    ],
)
def test_bad_arguments_exit_2_and_start_nothing(
    rune: Rune, add: str, arguments: list[str], message: str
) -> None:
    given = arguments if "--input" in arguments else [*arguments, "--input", '{"n": 1}']

    problems = rune.json("run", add, *given, code=2)["problems"]

    assert message.lower() in problems[0]["message"].lower()
    assert rune.json("list")["executions"] == []


def test_key_starts_one_execution(rune: Rune, add: str) -> None:
    first = rune.json("run", add, "--input", '{"n": 1}', "--key", "k")
    again = rune.json("run", add, "--input", '{"n": 1}', "--key", "k")
    other = rune.json("run", add, "--input", '{"n": 2}', "--key", "k", code=2)

    assert first == again
    assert other["problems"][0]["code"] == "KEY_CONFLICT"


def test_json_output_does_not_import_rich() -> None:
    code = (
        "import sys; sys.argv = ['rune', 'nodes', '--json']\n"
        "from rune.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('rich' in sys.modules, 'rune.bootstrap' in sys.modules, file=sys.stderr)"
    )
    assert interpreted(code).stderr.split() == ["False", "False"]


def test_cli_import_loads_no_heavy_modules() -> None:
    code = (
        "import sys, rune, rune.cli.main\n"
        "heavy = ('asyncio', 'rich', 'ruamel', 'jsonschema', 'sqlite3', 'msgspec', 're2', 'pydantic')\n"
        "print([each for each in heavy if each in sys.modules])"
    )
    assert interpreted(code).stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["run", "list", "show"])
def test_command_without_server_does_not_import_client(
    command: str, rune: Rune, add: str, tmp_path: pathlib.Path
) -> None:
    rune("run", add, "--input", '{"n": 1}', "--id", "first")
    arguments = {"run": [add, "--input", '{"n": 1}'], "list": [], "show": ["first"]}[command]
    code = (
        f"import os, sys; os.environ['RUNE_HOME'] = {str(tmp_path / 'home')!r}\n"
        f"sys.argv = {['rune', command, *arguments]!r}\n"
        "from rune.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as done: print(done.code or 0, file=sys.stderr)\n"
        "print([each for each in ('httpx', 'rune.client', 'fastapi', 'rich') if each in sys.modules], file=sys.stderr)"
    )

    assert interpreted(code).stderr.split("\n")[-3:-1] == ["0", "[]"]


def test_missing_file_is_reported(rune: Rune, tmp_path: pathlib.Path) -> None:
    done = rune("run", str(tmp_path / "gone.yaml"))

    assert done.returncode == 2
    assert f"`{tmp_path / 'gone.yaml'}` cannot be read: no such file or directory" in done.stderr


@pytest.mark.parametrize(
    "command", [("run",), ("start",), ("signal", "x"), ("retry",), ("rerun", "--from", "a")]
)
def test_empty_key_is_rejected(rune: Rune, add: str, command: tuple[str, ...]) -> None:
    done = rune(command[0], add, *command[1:], "--key", "")

    assert done.returncode == 2
    assert "the key is empty" in done.stderr
    assert rune.json("list")["executions"] == []
