"""`rune` within this process: quicker than a process of its own where only its words matter."""

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

# Each call would make all the commands anew, which takes longer than most of them do.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]


@contextmanager
def _same_log() -> Iterator[None]:
    """A command that serves sets up the log of its process; ours stays as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class Here:
    """The command line over one home folder."""

    def __init__(self, home: pathlib.Path, **environment: str) -> None:
        self.home = home
        self._runner = CliRunner(env={"RUNE_HOME": str(home), "NO_COLOR": "1", **environment})

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run a command to its end; what it raises is raised here."""
        with _same_log():
            return self._runner.invoke(app, list(arguments), input=stdin, catch_exceptions=False)

    def said(self, *arguments: str, code: int = 0) -> str:
        """What a command prints."""
        done = self(*arguments)
        assert done.exit_code == code, done.output
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints."""
        return json.loads(self.said(*arguments, "--json", code=code))
