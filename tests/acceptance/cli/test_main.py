"""The command table of `rune.cli.main`, from which `rune --help` is printed without importing the commands."""

from __future__ import annotations

import pathlib

import pytest
from typer.testing import CliRunner

from rune.cli.main import COMMANDS, app, load_command
from tests.support.cli_process import interpreted
from tests.support.in_process_cli import InProcessCli


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_first_paragraph_of_help(name: str) -> None:
    first = load_command(name).help.split("\n\n")[0]

    assert COMMANDS[name].short_help == first.replace("\n", " ")


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from rune.cli.main import COMMANDS, app\n"
        "shown = CliRunner().invoke(app, ['--help']).output\n"
        "print([name for name in COMMANDS if f' {name} ' not in shown])\n"
        "print([name for name in sys.modules if name.startswith('rune.cli.commands')])"
    )

    assert interpreted(code).stdout.split("\n")[:2] == ["[]", "[]"]


def test_unknown_command_suggests_similar_one() -> None:
    result = CliRunner().invoke(app, ["lst"])

    assert result.exit_code == 2
    assert "No such command 'lst'. Did you mean 'list'?" in result.output


@pytest.mark.parametrize(("former", "name"), [("audit", "verify"), ("gc", "prune"), ("log", "audit-log")])
def test_former_name_of_command_works_and_is_not_listed(
    former: str, name: str, tmp_path: pathlib.Path
) -> None:
    rune = InProcessCli(tmp_path)

    listed = [line.strip("│ ").split(" ")[0] for line in rune.output("--help").splitlines()]

    assert name in listed
    assert former not in listed
    assert rune.output(former, "--help").splitlines()[3:] == rune.output(name, "--help").splitlines()[3:]


def test_former_option_key_works_and_is_not_listed(tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path / "home")
    file = tmp_path / "hello.json"
    file.write_text('{"id": "hello", "nodes": [{"id": "a", "type": "input"}]}')

    first = rune.json("run", str(file), "--idempotency-key", "k")["execution_id"]

    assert rune.json("run", str(file), "--key", "k")["execution_id"] == first
    assert "--key " not in rune.output("run", "--help")


@pytest.mark.parametrize("group", ["keys", "triggers", "credentials", "workflows", "dlq"])
def test_group_without_command_lists(group: str, tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path)

    assert rune.output(group, "--json") == rune.output(group, "list", "--json")
