"""The description of the interpreter, and the choice of `make setup`."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from rune.bootstrap.interpreter import describe, is_optimised, is_this_optimised
from tests.support.paths import ROOT

FAKE = """#!/bin/sh
case "$*" in *interpreter.py*) exit {optimised};; *) exit {usable};; esac
"""


@pytest.mark.parametrize(
    ("variables", "prefix", "debian", "found"),
    [
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, "elsewhere", False, True),
        ({"PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction"}, "elsewhere", False, True),
        ({"CONFIG_ARGS": "'--enable-shared'"}, "/usr", True, True),
        ({"CONFIG_ARGS": "'--enable-shared'"}, "/usr", False, False),
        ({"CONFIG_ARGS": "'--prefix=own'", "OPT": "-O3"}, "own", True, False),
        # Every build names the flag, whether it uses it or not.
        ({"PGO_PROF_USE_FLAG": "-fprofile-use"}, "elsewhere", True, False),
        ({}, "elsewhere", False, False),
    ],
)
def test_interpreter_is_optimised_by_its_build(
    variables: dict[str, str], prefix: str, debian: bool, found: bool
) -> None:
    assert is_optimised(variables, prefix, debian=debian) == found


def test_description_names_version_and_build() -> None:
    text = describe()
    assert text.startswith("CPython 3.")
    assert text.endswith(
        "), profile-guided" if is_this_optimised() else "), without profile-guided optimisation"
    )


def _choose(folder: Path, **pythons: tuple[bool, bool]) -> str:
    """Run the choice of `make setup` with these interpreters in the path: usable, and optimised."""
    for name, (usable, optimised) in pythons.items():
        file = folder / name.replace("_", ".")
        file.write_text(FAKE.format(usable=int(not usable), optimised=int(not optimised)))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    script = (
        (ROOT / "tools" / "choose_python.sh").read_text().replace("/usr/bin/python3", "/nonexistent/python3")
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=ROOT,
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_setup_prefers_an_optimised_interpreter(tmp_path: Path) -> None:
    assert _choose(tmp_path, python3=(True, False), python3_12=(True, True)) == "python3.12"


def test_setup_keeps_an_optimised_python3(tmp_path: Path) -> None:
    assert _choose(tmp_path, python3=(True, True), python3_12=(True, True)) == "python3"


def test_setup_uses_python3_if_no_optimised_interpreter_can_create_environments(tmp_path: Path) -> None:
    assert _choose(tmp_path, python3=(True, False), python3_12=(False, True)) == "python3"
