"""Runs `rune` commands in this process."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.acceptance.conformance.expectations import Observation


def check(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Observation:
    """Run `rune check FILE --json`."""
    return command(["check", str(path), "--json"], capsys)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Observation:
    """Run `rune run`."""
    return command(["run", *arguments], capsys)


def command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Observation:
    """Run a command; return its exit code and output."""
    from rune.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["rune", *arguments])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())  # type: ignore[func-returns-value]
    code = ended.value.code
    out, err = capsys.readouterr()
    return Observation(
        exit_code=code if isinstance(code, int) else int(code is not None), stdout=out, stderr=err
    )
