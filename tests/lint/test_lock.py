"""The lock file is complete and every package in it is hashed."""

from __future__ import annotations

import re
import tomllib

from tests.lint.tree import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normalized_name(requirement: str) -> str:
    """Normalized name of a requirement: `ruamel-yaml` for `ruamel.yaml>=0.18`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def locked() -> dict[str, str]:
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)
    return {normalized_name(entry): entry for entry in entries if entry.strip()}


def test_all_requirements_are_locked() -> None:
    required = {
        normalized_name(each) for each in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    }

    assert required - locked().keys() == set()


def test_every_package_is_pinned_and_hashed() -> None:
    unpinned = [
        each for each, entry in locked().items() if "==" not in entry or "--hash=sha256:" not in entry
    ]

    assert unpinned == []


def test_compiled_packages_have_wheels_for_several_platforms() -> None:
    for compiled in ("msgspec", "google-re2"):
        assert locked()[compiled].count("--hash=") > 10
