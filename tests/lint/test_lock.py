"""The lock file: complete, hashed, and silent about where packages come from."""

from __future__ import annotations

import re
import tomllib

from tests.lint.tree import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def plain(requirement: str) -> str:
    """`ruamel-yaml` for `ruamel.yaml>=0.18`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def locked() -> dict[str, str]:
    """Each locked package with everything that is said of it."""
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)
    return {plain(entry): entry for entry in entries if entry.strip()}


def test_everything_asked_for_is_locked() -> None:
    wanted = {plain(each) for each in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]}

    assert wanted - locked().keys() == set()


def test_every_package_is_pinned_and_hashed() -> None:
    loose = [each for each, entry in locked().items() if "==" not in entry or "--hash=sha256:" not in entry]

    assert loose == []


def test_compiled_packages_have_wheels_for_more_than_one_machine() -> None:
    for compiled in ("msgspec", "google-re2"):
        assert locked()[compiled].count("--hash=") > 10
