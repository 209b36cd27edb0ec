"""The command line, run in this process."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.acceptance.conformance.verdict import Observed


def check(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Observed:
    """What `rune check FILE --json` says of a document."""
    return command(["check", str(path), "--json"], capsys)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Observed:
    """What `rune run` prints, and how it exits."""
    return command(["run", *arguments], capsys)


def command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Observed:
    """What a command prints, and how it exits."""
    from rune.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["rune", *arguments])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())  # type: ignore[func-returns-value]
    code = ended.value.code
    out, err = capsys.readouterr()
    return Observed(
        exit_code=code if isinstance(code, int) else int(code is not None), stdout=out, stderr=err
    )
