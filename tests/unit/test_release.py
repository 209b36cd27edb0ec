"""The release: version, changelog, tag, bill of materials, checksums."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint.tree import ROOT
from tools.release import bill_of_materials, checksums

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.1.0]

- The first one.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that a release changes."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "release.py", tmp_path / "tools" / "release.py")
    (tmp_path / "src" / "rune").mkdir(parents=True)
    (tmp_path / "src" / "rune" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "a maintainer")
    git(tmp_path, "config", "user.email", "maintainer@example.com")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def prepare(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.release", "prepare", version],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )


class TestPrepare:
    def test_version_and_changelog_are_committed_and_tagged(self, checkout: Path) -> None:
        assert prepare(checkout, "0.2.0").returncode == 0
        assert git(checkout, "log", "-1", "--format=%s") == "Release 0.2.0"
        assert git(checkout, "rev-parse", "v0.2.0^{commit}") == git(checkout, "rev-parse", "HEAD")
        assert '"0.2.0"' in git(checkout, "show", "HEAD:pyproject.toml")
        assert '"0.2.0"' in git(checkout, "show", "HEAD:src/rune/__init__.py")
        changelog = git(checkout, "show", "HEAD:CHANGELOG.md")
        assert re.search(
            r"## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- A thing\.", changelog
        )
        assert git(checkout, "status", "--porcelain") == ""

    @pytest.mark.parametrize(
        ("version", "reason"),
        [("0.1.0", "not newer"), ("0.0.9", "not newer"), ("next", "Invalid version")],
    )
    def test_version_that_is_not_newer_changes_nothing(
        self, checkout: Path, version: str, reason: str
    ) -> None:
        done = prepare(checkout, version)
        assert done.returncode == 1
        assert reason in done.stderr
        assert git(checkout, "status", "--porcelain") == ""
        assert git(checkout, "tag") == ""

    def test_uncommitted_change_is_not_released(self, checkout: Path) -> None:
        (checkout / "CHANGELOG.md").write_text(CHANGELOG + "more\n")
        done = prepare(checkout, "0.2.0")
        assert done.returncode == 1
        assert "uncommitted" in done.stderr

    def test_empty_changelog_is_not_released(self, checkout: Path) -> None:
        assert prepare(checkout, "0.2.0").returncode == 0
        done = prepare(checkout, "0.3.0")
        assert done.returncode == 1
        assert "no unreleased changes" in done.stderr
        assert git(checkout, "tag") == "v0.2.0"


class TestFiles:
    def test_bill_of_materials_has_every_locked_package_with_its_hashes(self) -> None:
        lock = (ROOT / "requirements.lock").read_text()
        bill = json.loads(bill_of_materials(lock, "0.2.0"))
        pins = {line.split("==")[0].split("[")[0] for line in lock.splitlines() if "==" in line}
        assert {component["name"] for component in bill["components"]} == pins
        assert sum(len(component["hashes"]) for component in bill["components"]) == lock.count(
            "--hash=sha256:"
        )
        assert bill["metadata"]["component"]["version"] == "0.2.0"

    def test_checksums_are_those_of_the_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.whl").write_bytes(b"wheel")
        (tmp_path / "SHA256SUMS").write_text("old")
        assert list(checksums(tmp_path)) == [f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"]
