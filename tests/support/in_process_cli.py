"""Runs `rune` commands in this process, which is faster than a separate process."""

from __future__ import annotations

import functools
import json
import logging
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer.testing
from typer.testing import CliRunner, Result

from rune.cli.main import app

# Building all commands on each call takes longer than most commands do.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Undo the logging setup that `rune serve` and `rune up` do."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class InProcessCli:
    """The command line with one home folder."""

    def __init__(self, home: pathlib.Path, **environment: str) -> None:
        if not home.exists():  # RUNE_HOME names it, so that it must exist to be read
            home.mkdir(parents=True)
        self.home = home
        self._runner = CliRunner(env={"RUNE_HOME": str(home), "NO_COLOR": "1", **environment})

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run a command to its end; its exceptions are raised here."""
        with _logging_restored():
            return self._runner.invoke(app, list(arguments), input=stdin, catch_exceptions=False)

    def output(self, *arguments: str, code: int = 0) -> str:
        """Run a command and return its standard output."""
        done = self(*arguments)
        assert done.exit_code == code, done.output
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command and return the document that it prints."""
        return json.loads(self.output(*arguments, "--json", code=code))
