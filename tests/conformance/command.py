"""The command line, run in this process."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.conformance.verdict import Observed


def check(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Observed:
    """What `rune check FILE --json` says of a document."""
    from rune.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["rune", "check", str(path), "--json"])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
    code = ended.value.code
    out, err = capsys.readouterr()
    return Observed(
        exit_code=code if isinstance(code, int) else int(code is not None), stdout=out, stderr=err
    )


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Observed:
    """What `rune run` prints, and how it exits."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        app(["run", *arguments])
    printed = capsys.readouterr()
    return Observed(int(left.value.code or 0), printed.out, printed.err)
