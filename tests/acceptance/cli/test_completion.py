"""Shell completion: the script for bash, and what it offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rune.cli.main import COMMANDS
from tests.support.paths import SOURCE, python_path

TIMEOUT_S = 120


@pytest.fixture
def bash(tmp_path: Path) -> list[str]:
    """The start of a bash command with `rune` on its PATH."""
    script = tmp_path / "rune"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m rune.cli.main "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    home = f"HOME={tmp_path}"
    shell = shutil.which("bash")
    assert shell is not None
    return ["env", f"PATH={path}", home, f"PYTHONPATH={python_path(SOURCE)}", shell, "--norc", "-c"]


def run(command: list[str], script: str) -> str:
    done = subprocess.run([*command, script], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return done.stdout


def complete(bash: list[str], *words: str) -> list[str]:
    """Return what the completion function offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in ("rune", *words))
    script = (
        # shellingham looks at the parent process, so bash must not replace itself by the command.
        f'eval "$(rune --show-completion; true)"; COMP_WORDS=({line}); COMP_CWORD={len(words)};'
        ' _rune_completion rune; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return run(bash, script).split()


def test_completion_of_nothing_offers_every_command(bash: list[str]) -> None:
    assert set(complete(bash, "")) == COMMANDS.keys()


def test_completion_of_subcommand_offers_its_names(bash: list[str]) -> None:
    assert complete(bash, "workflows", "l") == ["list", "limit"]


def test_completion_of_option_offers_options_of_command(bash: list[str]) -> None:
    assert complete(bash, "run", "--no-") == ["--no-in-place", "--no-worker"]


def test_install_completion_writes_script_for_bash(bash: list[str], tmp_path: Path) -> None:
    run(bash, "rune --install-completion; true")

    assert "_rune_completion" in (tmp_path / ".bash_completions" / "rune.sh").read_text(encoding="utf-8")
    assert "rune.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
