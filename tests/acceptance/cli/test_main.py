"""The command table of `rune.cli.main`, from which `rune --help` is printed without importing the commands."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rune.cli.main import COMMANDS, app, load_command
from tests.support.cli_process import interpreted


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
